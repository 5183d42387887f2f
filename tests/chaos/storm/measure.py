"""How fast work goes on: after a worker was killed, and after Redis was away."""

import asyncio
import time
from dataclasses import dataclass, field

from chaos.storm.fleet import Fleet
from chaos.storm.progress import Progress
from redis.asyncio import Redis
from redis.exceptions import RedisError

#: The promises (seconds).
RECLAIM_LIMIT, AGAIN_LIMIT = 15.0, 5.0

#: How long is waited, at most, while nothing is in the way.
_GIVE_UP_SECONDS = 60.0
_PACE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Held:
    """A lease as Redis has it: when it runs out, how often it was claimed, how often it was lost."""

    until: float | None
    epoch: str | None
    lost: int


@dataclass
class Measures:
    """What was measured (seconds)."""

    reclaimed: list[float] = field(default_factory=list)
    """For each shard that a killed worker had, and that was never lost before, until another worker claimed it."""
    reclaimed_calm: list[float] = field(default_factory=list)
    """The same, where nothing else was broken meanwhile."""
    again: list[float] = field(default_factory=list)
    """Each time Redis was back, until another row ended."""
    never: list[str] = field(default_factory=list)
    """Shards of a killed worker that nobody had claimed again, nor renewed, when the storm gave up."""
    kills_in_calm: int = 0
    """How often `reclaimed_calm` should have got something."""
    returns: int = 0
    """How often `again` should have."""


class Meter:
    """Watches from outside, in what Redis has."""

    def __init__(self, redis: Redis, progress: Progress, fleet: Fleet) -> None:
        self.measures = Measures()
        self._redis = redis
        self._progress = progress
        self._fleet = fleet

    async def snapshot(self) -> dict[str, _Held]:
        """Every lease there is."""
        try:
            names = await self._redis.zrange("minedraft:leases", 0, -1)
            return dict(zip(names, await self._look(names), strict=True))
        except (RedisError, OSError):
            return {}

    async def reclaimed(self, held: dict[str, _Held], killed: float, *, calm: bool) -> None:
        """Wait until the shards of the dead are claimed again, those leases that are never renewed but lost.

        Args:
            held: the leases just after the kill.
            killed: when that was.
            calm: nothing else is broken meanwhile.
        """
        self.measures.kills_in_calm += calm
        watched = dict(held)
        reaped: set[str] = set()
        calm_since, storms = killed, self._progress.storms
        while watched and time.monotonic() - calm_since < _GIVE_UP_SECONDS:
            await asyncio.sleep(_PACE_SECONDS)
            if self._held_up or self._progress.storms > storms:
                # Workers take nothing back for a while after each outage: they may be many in a row.
                calm_since, storms = time.monotonic(), self._progress.storms
            try:
                now = dict(zip(watched, await self._look(list(watched)), strict=True))
            except (RedisError, OSError):
                continue
            seconds = time.monotonic() - killed
            for name, lease in now.items():
                before = watched[name]
                if lease.lost > 1:
                    del watched[name]  # lost before: it waits behind all other shards of its job, as it should
                elif lease.lost > before.lost or name in reaped:
                    reaped.add(name)
                    if lease.epoch != before.epoch:
                        self.measures.reclaimed.append(seconds)
                        if calm:
                            self.measures.reclaimed_calm.append(seconds)
                        del watched[name]
                elif lease != before:
                    del watched[name]  # a living worker's: renewed, finished or given back
        self.measures.never += watched

    async def rows_again(self) -> None:
        """Redis is back: wait for the next row. Not counted when there is none to wait for, or it is broken again."""
        self.measures.returns += 1
        back, storms, done = time.monotonic(), self._progress.storms, self._progress.done
        while self._progress.gained < back and time.monotonic() - back < _GIVE_UP_SECONDS:
            if not self._progress.backlog or self._progress.storms > storms:
                return
            if self._held_up and self._progress.done == done:
                back = time.monotonic()  # nobody is there to answer, or may: the clock stands
            await asyncio.sleep(0.05)
        gained = self._progress.gained
        self.measures.again.append(gained - back if gained >= back else _GIVE_UP_SECONDS)

    @property
    def _held_up(self) -> bool:
        """Nobody is there to go on, or may."""
        return bool(self._progress.pauses) or not self._fleet.at_work

    async def _look(self, names: list[str]) -> list[_Held]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                job, _, shard = name.partition(" ")
                pipe.zscore("minedraft:leases", name)
                pipe.hget(f"minedraft:job:{job}:epochs", shard)
                pipe.hget(f"minedraft:job:{job}:lost", shard)
            found = await pipe.execute()
        return [
            _Held(until, epoch, int(lost or 0))
            for until, epoch, lost in zip(found[::3], found[1::3], found[2::3], strict=True)
        ]
