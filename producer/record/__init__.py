"""The record: the one place that knows how jobs, shards, rows and results lie in Redis."""
