"""Takes shards back from dead workers. Every worker does it: one idempotent call, never behind the queue."""

import logging

from redis.asyncio import Redis

from producer.record import leases
from worker.metrics import Metrics

log = logging.getLogger(__name__)

#: With a lease of `keeper.LEASE_SECONDS`, a dead worker's shards are claimable within 15 s.
REAP_SECONDS = 2.0


async def reap(redis: Redis, metrics: Metrics) -> None:
    """Make the shards of expired leases claimable; to be called every `REAP_SECONDS`."""
    for job_id, shard in await leases.reap(redis):
        metrics.shards_reaped.inc()
        log.warning("job %s: shard %d taken back from a worker that fell silent", job_id, shard)
