"""Results on their way to Redis: gathered for a few milliseconds, written in one round trip, kept until written."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from producer.record import control, leases
from producer.record.connection import heed_cancel, told
from producer.record.leases import Lease
from producer.record.models import Outcome, Row, RowFault
from producer.record.trouble import Trouble, trouble
from worker.backoff import Backoff
from worker.metrics import Metrics
from worker.queue.health import MOST_SECONDS, RedisHealth
from worker.queue.spill import Place, Spill

log = logging.getLogger(__name__)

#: How long the first result of a batch waits for others. More saves round trips, and delays what users see.
GATHER_SECONDS = 0.005

#: Most results in one write: bounds the time Redis is busy with one script.
_MOST = 512

#: Most bytes in one write, unless one line alone has more: a slow network takes them within a worker's patience.
_MOST_BYTES = 8 << 20

#: What waits for Redis is kept in memory up to here, and on disk beyond.
MEMORY_BYTES = 64 << 20

#: No line of a results file is longer: it must reach Redis within a worker's patience, in one piece.
LONGEST_LINE = 32 << 20


def fit(row: Row, outcome: Outcome) -> Outcome:
    """The outcome, or an error in its place when its line is longer than `LONGEST_LINE`."""
    if _size(outcome.line) <= LONGEST_LINE:
        return outcome
    message = f"the answer takes more than the {LONGEST_LINE >> 20} MiB that a result may have"
    return Outcome.failed_row(row.index, row.line, row.custom_id, RowFault("answer_too_large", message), row.file)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


@dataclass(slots=True)
class _Waiting:
    """A result on its way; where `place` is set, its line lies on disk."""

    lease: Lease
    outcome: Outcome
    size: int
    written: asyncio.Future[bool]
    place: Place | None = None


class ResultBuffer:
    """Writes outcomes in batches and answers each `put` when its outcome is in Redis (or its lease is lost).

    While Redis is away nothing is dropped: the batch is tried again with backoff, and `put` waits, which in
    turn keeps its caller from taking on more work.

    `on_written` is called with the job and the outcome of each row whose end is in Redis.
    """

    def __init__(
        self,
        redis: Redis,
        metrics: Metrics,
        health: RedisHealth,
        on_written: Callable[[str, Outcome], Any] = lambda _job, _outcome: None,
    ) -> None:
        self._redis = redis
        self._metrics = metrics
        self._health = health
        self._on_written = on_written
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._spill = Spill()
        self._disk_full = False
        self._count = self._bytes = 0

    async def put(self, lease: Lease, outcome: Outcome) -> bool:
        """Returns when the outcome is written: True, or False because the lease is lost and the row is not ours."""
        item = _Waiting(lease, outcome, _size(outcome.line), asyncio.get_running_loop().create_future())
        self._count += 1
        self._health.waits(self._count)
        try:
            if self._bytes + item.size > MEMORY_BYTES:
                await self._to_disk(item)
            if item.place is None:
                self._bytes += item.size
            del outcome  # its line may be on disk by now
            self._queue.put_nowait(item)
            return await item.written
        finally:
            self._count -= 1
            self._health.waits(self._count)

    async def run(self) -> None:
        """Write for ever; cancel it when every `put` has returned."""
        try:
            item = await self._queue.get()
            while True:
                await asyncio.sleep(GATHER_SECONDS)
                batch, size = [item], item.size
                following: _Waiting | None = None
                while following is None and not self._queue.empty() and len(batch) < _MOST:
                    item = self._queue.get_nowait()
                    size += item.size
                    if size > _MOST_BYTES:
                        following = item
                    else:
                        batch.append(item)
                await self._write(batch)
                heed_cancel()
                item = following or await self._queue.get()
        finally:
            self._spill.close()

    async def _to_disk(self, item: _Waiting) -> None:
        try:
            item.place = await self._spill.keep(item.outcome.line.encode())
        except OSError as error:
            if not self._disk_full:
                log.warning("results wait in memory, the temporary folder takes no more: %s", error.strerror)
            self._disk_full = True
            return
        self._disk_full = False
        item.outcome = replace(item.outcome, line="")
        self._metrics.results_spilled.set(self._spill.bytes)

    async def _outcome(self, item: _Waiting) -> Outcome:
        if item.place is None:
            return item.outcome
        return replace(item.outcome, line=(await self._spill.read(item.place)).decode())

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        by_lease: dict[Lease, list[_Waiting]] = defaultdict(list)
        for item in batch:
            by_lease[item.lease].append(item)
        writes = [(lease, [await self._outcome(item) for item in items]) for lease, items in by_lease.items()]
        started = time.monotonic()
        counts = await self._finish(writes)
        self._metrics.result_write_seconds.observe(time.monotonic() - started)
        for items, count in zip(by_lease.values(), counts, strict=True):
            for item in items:
                self._written(item, ours=count is not None)

    def _written(self, item: _Waiting, *, ours: bool) -> None:
        if ours:
            self._metrics.row_ended(item.outcome)
            self._on_written(item.lease.job_id, item.outcome)
        if item.place is None:
            self._bytes -= item.size
        else:
            self._spill.forget(item.place)
            self._metrics.results_spilled.set(self._spill.bytes)
        if not item.written.done():
            item.written.set_result(ours)

    async def _stop(self, lease: Lease, why: str) -> None:
        """Pause a job whose results cannot be written: its rows would be answered for nothing, again and again."""
        log.error("job %s: Redis refuses results of shard %d: %s", lease.job_id, lease.shard, why)
        with suppress(RedisError, OSError):
            await control.pause(self._redis, lease.job_id, f"Redis refuses its results: {why}")

    async def _finish(self, writes: Sequence[tuple[Lease, Sequence[Outcome]]]) -> list[int | None]:
        """Write until it is written. What Redis refuses of one shard only must not hold up the others."""
        backoff = Backoff(most=MOST_SECONDS)
        while True:
            try:
                with self._health.watch("results"):
                    return await leases.finish(self._redis, writes)
            except (RedisError, OSError) as error:
                if not (isinstance(error, ResponseError) and trouble(error) is Trouble.OTHER):
                    await self._health.pause(backoff)
                    heed_cancel()
                    continue
                if len(writes) == 1:
                    # Somebody has damaged the job's keys, for example: repeating it changes nothing.
                    await self._stop(writes[0][0], told(error))
                    return [None]
            return [(await self._finish([write]))[0] for write in writes]
