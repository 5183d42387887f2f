"""How far the rows are, as Redis counts them, and when there was weather."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

_PACE_SECONDS = 0.1


class Progress:
    """Asks Redis ten times a second; asked while Redis is away, it knows what was last."""

    def __init__(self, redis: Redis, total: int) -> None:
        self.total = total
        self.submitted = 0
        self.done = 0
        self.gained = time.monotonic()
        """When `done` last grew."""
        self.storms = 0
        """How often Redis has been away, or refused."""
        self.pauses = 0
        """Jobs that users have paused."""
        self._redis = redis
        self._jobs: dict[str, int] = {}
        self._rows: dict[str, int] = {}

    @property
    def backlog(self) -> int:
        """Rows that wait or run."""
        return self.submitted - self.done

    @property
    def share(self) -> float:
        """Of all rows of the storm, how many have ended."""
        return self.done / self.total

    def add(self, job: str, rows: int) -> None:
        """Another job's rows."""
        if job not in self._jobs:
            self._jobs[job] = 0
            self._rows[job] = rows
            self.submitted += rows

    @property
    def busiest(self) -> tuple[str, int]:
        """The job with most rows left, and how many."""
        return max(
            ((job, rows - self._jobs[job]) for job, rows in self._rows.items()), key=lambda it: it[1], default=("", 0)
        )

    async def follow(self) -> None:
        """Look for ever."""
        while True:
            with suppress(RedisError, OSError):
                await self._look()
            await asyncio.sleep(_PACE_SECONDS)

    async def _look(self) -> None:
        jobs = list(self._jobs)  # another one may be added meanwhile
        async with self._redis.pipeline(transaction=False) as pipe:
            for job in jobs:
                pipe.hget(f"minedraft:job:{job}", "done")
            counts = await pipe.execute()
        self._jobs |= {job: int(count or 0) for job, count in zip(jobs, counts, strict=True)}
        done = sum(self._jobs.values())
        if done > self.done:
            self.gained = time.monotonic()
        self.done = done

    @contextmanager
    def storm(self) -> Iterator[None]:
        """Redis is away, or refuses, while the block runs."""
        self.storms += 1
        yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A job is paused while the block runs."""
        self.pauses += 1
        try:
            yield
        finally:
            self.pauses -= 1
