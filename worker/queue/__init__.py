"""The queue's guarantees, worker side: tokens, shards, leases, results. Knows the record, not the engine."""
