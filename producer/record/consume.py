"""The consumer's half of the record: results leave Redis once they are safe elsewhere.

`take` sets the next results aside, the consumer writes them to its disk, `trim` removes them. Whatever dies in
between, the same results are taken again, with the same number of results before them: the consumer compares that
number with what it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from producer.record import scripts

#: Results taken in one round trip, and about how many bytes of them.
_ROWS = 256
_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """Results that are set aside.

    Attributes:
        consumed: how many results were trimmed before these.
        lines: lines of the results file, without newline, in the order in which the rows ended.
    """

    consumed: int
    lines: Sequence[str]


async def take(redis: Redis, job_id: str) -> Batch | None:
    """Set the next results aside; until they are trimmed these come again. None: there is no such job."""
    return await _batch(redis, job_id, "take")


async def look(redis: Redis, job_id: str) -> Batch | None:
    """What `take` would give; nothing is set aside."""
    return await _batch(redis, job_id, "look")


async def trim(redis: Redis, job_id: str, batch: Batch) -> bool:
    """Remove the results of a batch, which must be on a disk by now; False when they were removed before."""
    return bool(await scripts.run(redis, "trim", job_id, batch.consumed))


async def _batch(redis: Redis, job_id: str, how: str) -> Batch | None:
    found = await scripts.run(redis, "take", job_id, _ROWS, _BYTES, how)
    if not found:
        return None
    consumed, *lines = found
    return Batch(int(consumed), lines)
