"""The light side of minedraft-worker: submits datasets, watches them, fetches results; owns the wire format."""
