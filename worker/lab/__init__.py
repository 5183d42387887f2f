"""Instruments: measure, imagine, draw and predict two batches. Nothing that answers rows for users imports this."""
