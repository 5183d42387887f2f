"""Results on their way to Redis: gathered for a few milliseconds, written in one round trip, kept until written."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence

from redis.asyncio import Redis
from redis.exceptions import RedisError

from producer.record import leases
from producer.record.connection import heed_cancel
from producer.record.leases import Lease
from producer.record.models import Outcome
from worker.backoff import Backoff
from worker.metrics import Metrics

log = logging.getLogger(__name__)

#: How long the first result of a batch waits for others. More saves round trips, and delays what users see.
GATHER_SECONDS = 0.005

#: Most results in one write: bounds the time Redis is busy with one script.
_MOST = 512


class ResultBuffer:
    """Writes outcomes in batches and answers each `put` when its outcome is in Redis (or its lease is lost).

    While Redis is away nothing is dropped: the batch is tried again with backoff, and `put` waits, which in
    turn keeps its caller from taking on more work.
    """

    def __init__(self, redis: Redis, metrics: Metrics) -> None:
        self._redis = redis
        self._metrics = metrics
        self._queue: asyncio.Queue[tuple[Lease, Outcome, asyncio.Future[bool]]] = asyncio.Queue()

    async def put(self, lease: Lease, outcome: Outcome) -> bool:
        """Returns when the outcome is written: True, or False because the lease is lost and the row is not ours."""
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((lease, outcome, written))
        return await written

    async def run(self) -> None:
        """Write for ever; cancel it when every `put` has returned."""
        while True:
            batch = [await self._queue.get()]
            await asyncio.sleep(GATHER_SECONDS)
            while not self._queue.empty() and len(batch) < _MOST:
                batch.append(self._queue.get_nowait())
            await self._write(batch)
            heed_cancel()

    async def _write(self, batch: Sequence[tuple[Lease, Outcome, asyncio.Future[bool]]]) -> None:
        by_lease: dict[Lease, list[tuple[Outcome, asyncio.Future[bool]]]] = defaultdict(list)
        for lease, outcome, future in batch:
            by_lease[lease].append((outcome, future))
        writes = [(lease, [outcome for outcome, _ in pairs]) for lease, pairs in by_lease.items()]
        started = time.monotonic()
        backoff = Backoff()
        while True:
            try:
                counts = await leases.finish(self._redis, writes)
                break
            except (RedisError, OSError) as error:
                log.warning("%d results wait for Redis: %s", len(batch), error)
                await backoff.wait()
        self._metrics.result_write_seconds.observe(time.monotonic() - started)
        for (_, pairs), count in zip(by_lease.items(), counts, strict=True):
            for outcome, future in pairs:
                if count is not None:
                    self._metrics.row_ended(outcome)
                if not future.done():
                    future.set_result(count is not None)
