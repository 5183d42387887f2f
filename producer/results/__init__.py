"""Results as files: their shapes, how they are written, and the manifest that goes with them."""
