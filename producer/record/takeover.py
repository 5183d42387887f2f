"""A submission that was cut short is continued by whoever submits the same rows next.

It is known by what decides how rows are staged (the plan) and by the digest of what was staged. Who continues it reads
its own input without sending anything, sees that the digests agree, and becomes its owner. An owner that was only
frozen finds that out with its next call, which is refused.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from producer.record import scripts

#: A producer that sends nothing for so long is taken for dead, when another one wants to go on.
SILENT_SECONDS = 10.0
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Left:
    """A submission as it was seen.

    Attributes:
        job_id: the job that it is for.
        owner: its producer; "" when that one let go of it.
        calls: how many calls of `stage` it has.
        digest: of the rows that were read by the last of them.
        silent_s: seconds since the last of them.
    """

    job_id: str
    owner: str
    calls: int
    digest: str
    silent_s: float

    @property
    def is_free(self) -> bool:
        """Nobody is at work on it."""
        return not self.owner or self.silent_s >= SILENT_SECONDS


async def find(redis: Redis, plan: str, first: str, *, but: Collection[str], say: Callable[[str], Any]) -> Left | None:
    """The submission that began with the same call and is the furthest; None when there is none that may be continued.

    Waits for as long as it takes to see whether its producer is alive: at most `SILENT_SECONDS`.

    Args:
        redis: where.
        plan: hash of what decides how rows are staged.
        first: digest of the rows that were read by the first call.
        but: jobs that are no use.
        say: hears that one waits.
    """
    passed_over = set(but)
    seen: dict[str, Left] = {}
    said = False
    while True:
        found = [left for left in await _look(redis, plan, first) if left.job_id not in passed_over]
        if free := [left for left in found if left.is_free]:
            return max(free, key=lambda left: left.calls)
        for left in found:
            before = seen.setdefault(left.job_id, left)
            if (before.owner, before.calls) != (left.owner, left.calls):
                passed_over.add(left.job_id)  # its producer is alive
        if all(left.job_id in passed_over for left in found):
            return None
        if not said:
            say("these rows are being submitted already, or were until just now: looking whether that goes on")
        said = True
        await asyncio.sleep(_LOOK_SECONDS)


async def _look(redis: Redis, plan: str, first: str) -> list[Left]:
    return [
        Left(job_id, owner, calls, digest, silent_ms / 1000)
        for job_id, owner, calls, digest, silent_ms in await scripts.run(redis, "left", plan, first)
    ]
