"""How much of Redis's memory a job takes: estimated from samples, so that it is cheap however large the job is."""

from typing import cast

from redis.asyncio import Redis

from producer.record.jobs import JobStatus
from producer.record.keys import key
from producer.record.trouble import sound

#: Elements that the server looks into to judge a large key.
_SAMPLES = 64

#: Shards whose rows are measured, to judge all of them.
_SHARDS = 32

#: A job's keys that grow with its rows, beside the rows themselves.
_WHOLE = ("job", "open", "epochs", "lost", "results", "finished", "taken", "failed", "engines")


async def memory(redis: Redis, job: JobStatus) -> int:
    """About how many bytes the job takes in Redis, keys that somebody has damaged left out."""
    async with redis.pipeline(transaction=False) as pipe:
        for name in _WHOLE:
            pipe.memory_usage(key(name, job.job_id), samples=_SAMPLES)
        pipe.execute_command("ZRANDMEMBER", key("open", job.job_id), _SHARDS)
        pipe.execute_command("HRANDFIELD", key("epochs", job.job_id), _SHARDS)
        *sizes, waiting, claimed = [sound(answer) for answer in await pipe.execute(raise_on_error=False)]
    return sum(size or 0 for size in sizes) + await _rows(redis, job, sorted({*(waiting or ()), *(claimed or ())}))


async def _rows(redis: Redis, job: JobStatus, shards: list[str]) -> int:
    """The unfinished rows, judged by those of some shards."""
    async with redis.pipeline(transaction=False) as pipe:
        for shard in shards:
            pipe.memory_usage(key("rows", job.job_id, shard), samples=_SAMPLES)
            pipe.hlen(key("rows", job.job_id, shard))
        found = cast("list[int | None]", [sound(answer) for answer in await pipe.execute(raise_on_error=False)])
    size, rows = (sum(part or 0 for part in found[start::2]) for start in (0, 1))
    return round(size / rows * (job.rows - job.done)) if rows else 0
