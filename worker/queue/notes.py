"""A worker's notes of the jobs that it has rows of, for whoever asks later who answered them, and at what cost."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from producer.record import provenance
from producer.record.connection import heed_cancel
from producer.record.fleet import WorkerStats
from producer.record.models import Outcome
from producer.record.provenance import EngineFacts
from worker.queue.ledger import Ledger

#: How long a row's end waits to be noted with others: short, for a job may be read as soon as its last row has ended.
_SOON_SECONDS = 0.5


class Notes:
    """Keeps and writes the notes of one worker; nothing waits for them.

    Args:
        redis: where jobs are.
        worker_id: whose notes they are.
        facts: what the worker computes with, as far as it is known now.
        stats: what it has done so far.
    """

    def __init__(
        self, redis: Redis, worker_id: str, facts: Callable[[], EngineFacts], stats: Callable[[], WorkerStats]
    ) -> None:
        self._redis = redis
        self._worker_id = worker_id
        self._facts, self._stats = facts, stats
        self._ledger = Ledger()
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()

    def ended(self, job_id: str, outcome: Outcome) -> None:
        """A row of the job has ended, and its result is in Redis."""
        self._ledger.ended(job_id, outcome)
        self._news.set()

    async def write(self) -> None:
        """Write what has changed; one call at a time, for a note replaces the one before it.

        Raises:
            redis.exceptions.RedisError, OSError: it was not written; the next call does it.
        """
        async with self._writing:
            self._ledger.settle(self._stats())
            shares = self._ledger.changed()
            if not shares:
                return
            try:
                await provenance.note(self._redis, self._worker_id, self._facts(), shares)
            except BaseException:
                self._ledger.unsaid(shares)
                raise

    async def run(self) -> None:
        """Write soon after rows have ended, until cancelled. What fails is left to whoever calls `write` next."""
        while True:
            await self._news.wait()
            await asyncio.sleep(_SOON_SECONDS)
            self._news.clear()
            with suppress(RedisError, OSError):
                await self.write()
            heed_cancel()
