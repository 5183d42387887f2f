"""The consumer's half of the record: results leave Redis once they are safe elsewhere.

`take` sets the next results aside, the consumer writes them to its disk, `trim` removes them. Whatever dies in
between, the same results are taken again, with the number and the digest of those before them: the consumer compares
these with what it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from producer.record import scripts

#: Results taken in one round trip, and about how many bytes of them.
_ROWS = 256
_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """Results that are set aside.

    Attributes:
        consumed: how many results were trimmed before these.
        digest: what the last `trim` was told of them; "" when there are none.
        lines: lines of the results file, without newline, in the order in which the rows ended.
    """

    consumed: int
    digest: str
    lines: Sequence[str]


async def take(redis: Redis, job_id: str) -> Batch | None:
    """Set the next results aside; until they are trimmed these come again. None: there is no such job."""
    return await _batch(redis, job_id, "take")


async def look(redis: Redis, job_id: str) -> Batch | None:
    """What `take` would give; nothing is set aside."""
    return await _batch(redis, job_id, "look")


async def trim(redis: Redis, job_id: str, batch: Batch, digest: str = "") -> bool:
    """Remove the results of a batch, which must be on a disk by now; False when they were removed before.

    The digest is that of the file which has them now: SHA-256, in hex, of all lines consumed so far, each with its
    newline. Without it they are in no such file, and a consumer that has one will not go on with it.
    """
    return bool(await scripts.run(redis, "trim", job_id, batch.consumed, digest))


async def _batch(redis: Redis, job_id: str, how: str) -> Batch | None:
    found = await scripts.run(redis, "take", job_id, _ROWS, _BYTES, how)
    if not found:
        return None
    consumed, digest, *lines = found
    if None in lines:
        raise ResponseError(f"results of job {job_id} are missing: somebody has removed them")
    return Batch(int(consumed), digest, lines)
