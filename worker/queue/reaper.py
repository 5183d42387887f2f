"""Takes shards back from dead workers. Every worker does it: one idempotent call, never behind the queue."""

import logging

from redis.asyncio import Redis

from producer.record import control, leases
from worker.metrics import Metrics
from worker.queue.health import RedisHealth
from worker.queue.keeper import LEASE_SECONDS

log = logging.getLogger(__name__)

#: With a lease of `keeper.LEASE_SECONDS`, a dead worker's shards are claimable within 15 s.
REAP_SECONDS = 2.0

#: How often it is looked whether anything must be removed.
SWEEP_SECONDS = 10.0


async def reap(redis: Redis, metrics: Metrics, health: RedisHealth) -> None:
    """Make the shards of expired leases claimable; to be called every `REAP_SECONDS`.

    Leases run out while Redis is away, too, though their workers live: those get a lease's time to renew them.
    A worker that has just started cannot know whether Redis was away.
    """
    if not health.quiet_for(LEASE_SECONDS):
        await redis.ping()  # whoever calls this takes a return for a sign that Redis is there
        return
    for job_id, shard in await leases.reap(redis):
        metrics.shards_reaped.inc()
        log.warning("job %s: shard %d taken back from a worker that fell silent", job_id, shard)


async def sweep(redis: Redis) -> None:
    """Remove what cancelled, expired and abandoned jobs left; to be called every `SWEEP_SECONDS`."""
    while await control.sweep(redis):
        pass
