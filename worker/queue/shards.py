"""One shard's life in a worker: claimed, fed to the engine row by row, its ends written, the rest given back."""

import asyncio
import logging
from collections.abc import Collection
from typing import Protocol

from redis.asyncio import Redis
from redis.exceptions import RedisError

from producer.record import leases
from producer.record.jobs import SHARD_ROWS
from producer.record.leases import Claim, Lease
from producer.record.models import Answer, Outcome, Row, RowFault
from worker.engine.protocol import EngineDead, RowError
from worker.metrics import Metrics
from worker.queue.appetite import Appetite
from worker.queue.buffer import ResultBuffer
from worker.queue.keeper import LEASE_MS, Keeper
from worker.until import until

log = logging.getLogger(__name__)


class Answering(Protocol):
    """What a shard needs of an engine."""

    async def answer(self, row: Row) -> Answer:
        """See `worker.engine.protocol.Engine.answer`; `EngineDead` leaves the row unfinished."""
        ...


class ShardRunner:
    """Runs shards, any number at once, until told to stop.

    Two stages of stopping: `drain` begins no row and claims no shard any more but lets rows in the engine
    end; `abandon` also takes those out of the engine. Either way unfinished rows go back to the record.
    """

    def __init__(
        self,
        redis: Redis,
        engine: Answering,
        *,
        served: str,
        appetite: Appetite,
        keeper: Keeper,
        buffer: ResultBuffer,
        metrics: Metrics,
    ) -> None:
        self._redis = redis
        self._engine = engine
        self._served = served
        self._appetite = appetite
        self._keeper = keeper
        self._buffer = buffer
        self._metrics = metrics
        self._draining = asyncio.Event()
        self._abandoned = asyncio.Event()

    def drain(self) -> None:
        """Begin nothing new."""
        self._draining.set()

    def abandon(self) -> None:
        """Begin nothing new and end what runs."""
        self._draining.set()
        self._abandoned.set()

    async def run_token(self, token: str) -> None:
        """Work off one arq token: claim a shard whenever the engine is hungry and run it, until none is there."""
        try:
            with self._keeper.token(token):
                while (claim := await self._claim()) is not None:
                    await self._run(claim)
        except (RedisError, OSError) as error:
            # Nothing is lost: a lease that could not be given back runs out and is reaped.
            log.warning("a shard waits for Redis: %s", error)

    async def _claim(self) -> Claim | None:
        if not await until(self._appetite.hunger(), self._draining):
            return None
        found = None
        try:
            if not self._draining.is_set():
                found = await leases.claim(self._redis, served=self._served, lease_ms=LEASE_MS)
        finally:
            self._appetite.waits((len(found.rows) if found else 0) - SHARD_ROWS)
        (self._metrics.claimed if found else self._metrics.claimed_nothing).inc()
        return found

    async def _run(self, claim: Claim) -> None:
        with self._keeper.lease(claim.lease) as lost:
            await self._answer_rows(claim, lost)
        # Refused, as it should be, when the shard is finished or somebody else's by now.
        if await leases.release(self._redis, claim.lease):
            log.info("job %s: shard %d given back", claim.lease.job_id, claim.lease.shard)

    async def _answer_rows(self, claim: Claim, lost: asyncio.Event) -> None:
        """Returns when every row has ended, or the lease is lost, or no row may go on."""
        rows: set[asyncio.Task[None]] = set()
        try:
            await until(self._feed(claim, rows), lost, self._draining)
            if not await until(_all(rows), lost, self._abandoned) and lost.is_set():
                self._metrics.leases_lost.inc()
                log.warning("job %s: the lease on shard %d is lost", claim.lease.job_id, claim.lease.shard)
        finally:
            for row in rows:
                row.cancel()
            await _all(rows)

    async def _feed(self, claim: Claim, rows: set[asyncio.Task[None]]) -> None:
        """Give the rows to the engine in input order, as it has room; `rows` gets a task for each."""
        waiting = len(claim.rows)
        try:
            for row in claim.rows:
                await self._appetite.in_engine.acquire()
                waiting -= 1
                self._appetite.waits(-1)
                rows.add(asyncio.create_task(self._end(claim.lease, row)))
        finally:
            self._appetite.waits(-waiting)

    async def _end(self, lease: Lease, row: Row) -> None:
        """Bring one row to its end and write it; cancelled, it is left unfinished."""
        try:
            with self._metrics.rows_in_flight.track_inprogress():
                outcome = await self._outcome(row)
        finally:
            self._appetite.in_engine.release()
        if outcome is None:
            return
        written = asyncio.ensure_future(self._buffer.put(lease, outcome))
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            await written  # what is answered is kept, whatever ends this shard
            raise

    async def _outcome(self, row: Row) -> Outcome | None:
        try:
            return Outcome.answered(row, await self._engine.answer(row))
        except EngineDead:
            return None
        except RowError as error:
            fault = error.fault
        except Exception:
            log.exception("a row could not be answered; this is a bug")
            fault = RowFault("internal_error", "the worker failed on this row; its log says why")
        return Outcome.failed_row(row.index, row.line, row.custom_id, fault)


async def _all(tasks: Collection[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)
