"""What a user does to a job once it is there; each is one atomic step."""

from redis.asyncio import Redis

from producer.record import scripts
from producer.record.models import SHARD_ROWS
from producer.record.packing import MOST_BYTES, MOST_ROWS

#: A submission that got no rows for so long was left by a producer that is dead.
_ABANDONED_MS = 24 * 3600 * 1000

#: Shards whose rows one call of `sweep` removes: a few milliseconds of Redis's time.
_SWEPT_SHARDS = 1000


async def cancel(redis: Redis, job_id: str) -> bool:
    """End a job: what is done stays, rows in flight are dropped (within a renewal). False: it had ended already."""
    return bool(await scripts.run(redis, "cancel", job_id))


async def pause(redis: Redis, job_id: str, reason: str = "") -> bool:
    """Let no more shards of a job be claimed; leased ones run to their end. False: it is not queued or running.

    `reason`: why it stops by itself; none where a user wants it.
    """
    return bool(await scripts.run(redis, "pause", job_id, reason))


async def resume(redis: Redis, job_id: str) -> bool:
    """Let a paused job go on; an error rate is counted anew from here. False: it is not paused."""
    return bool(await scripts.run(redis, "resume", job_id))


async def retry(redis: Redis, job_id: str) -> int:
    """Take the errors of a job back and run their rows again; returns how many.

    Not those refused at intake, nor those whose error lines were consumed; nor any of a cancelled job.
    """
    return int(await scripts.run(redis, "retry", job_id, SHARD_ROWS, MOST_ROWS, MOST_BYTES))


async def purge(redis: Redis, job_id: str) -> bool:
    """Remove an ended job, results and all. False: it has not ended."""
    return bool(await scripts.run(redis, "purge", job_id))


async def sweep(redis: Redis) -> bool:
    """Remove a portion of what must go; True while rows of doomed jobs are left. Every worker does it now and then.

    That is: ended jobs that have stayed as long as they were asked to, submissions whose producer died, and the
    unfinished rows of jobs that were cancelled or discarded.
    """
    return bool(await scripts.run(redis, "sweep", _ABANDONED_MS, _SWEPT_SHARDS))
