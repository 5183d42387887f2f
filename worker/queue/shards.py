"""One shard's life in a worker: claimed, fed to the engine row by row, its ends written, the rest given back."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from redis.asyncio import Redis
from redis.exceptions import RedisError

from producer.record import leases
from producer.record.leases import SUSPECT, Claim
from producer.record.models import SHARD_ROWS, Answer, Outcome, Row, RowFault
from worker.backoff import Backoff
from worker.engine.protocol import EngineDead, EngineDown, RowError, TransientError
from worker.metrics import Metrics
from worker.queue.appetite import Appetite
from worker.queue.buffer import ResultBuffer, fit
from worker.queue.health import CLAIMS, RedisHealth
from worker.queue.keeper import LEASE_MS, Keeper
from worker.until import until

log = logging.getLogger(__name__)

#: How often a row is tried that its engine fails on for a reason that may pass.
_TRIES = 3

#: Copies of a row whose lines are on their way to Redis at once.
_COPIES_AT_ONCE = 128


class Answering(Protocol):
    """What a shard needs of an engine: `worker.engine.supervisor`'s part of it."""

    async def ready(self) -> None:
        """Returns when an engine lives."""
        ...

    async def answer(self, row: Row, job: str = "") -> Answer:
        """See `EngineSupervisor.answer`; `EngineDead` leaves the row unfinished, and is counted as an attempt."""
        ...


@dataclass(slots=True)
class _Run:
    """A shard at work: `left` rows of it are not known to have ended."""

    claim: Claim
    left: int
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is no engine for its rows any more."""
    died: bool = False
    """The engine died with rows of it inside."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


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
        health: RedisHealth,
    ) -> None:
        self._redis = redis
        self._engine = engine
        self._served = served
        self._appetite = appetite
        self._keeper = keeper
        self._buffer = buffer
        self._metrics = metrics
        self._health = health
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
                while await until(self._appetite.hunger(), self._draining):
                    if not await self._one_shard():
                        break
        except (RedisError, OSError) as error:
            # Nothing is lost: a lease that could not be given back runs out and is reaped.
            log.debug("a shard waits for Redis: %s", error)

    async def _one_shard(self) -> bool:
        """Claim a shard and run it; False when there is none, or none may be begun."""
        try:
            claim = await self._claim()
            if claim is None:
                return False
            if claim.lost < SUSPECT:
                await self._run(claim)
                return True
            # Not held while others run: it would be blamed when they take the worker down.
            self._appetite.waits(-len(claim.prompts))
            await leases.release(self._redis, claim.lease)
        finally:
            self._appetite.over()
        async with self._appetite.alone():
            claim = await self._claim(first=claim.lease.job_id)
            if claim is not None:
                log.warning("job %s: shard %d runs alone", claim.lease.job_id, claim.lease.shard)
                await self._run(claim)
        return True

    async def _claim(self, first: str = "") -> Claim | None:
        """The next shard, or None when there is none; while Redis or the engine is away no claim is tried."""
        found = None
        try:
            while await until(self._able(), self._draining):
                try:
                    with self._health.watch(CLAIMS):
                        found = await leases.claim(self._redis, served=self._served, lease_ms=LEASE_MS, first=first)
                except (RedisError, OSError):
                    continue
                (self._metrics.claimed if found else self._metrics.claimed_nothing).inc()
                break
        finally:
            self._appetite.waits((len(found.prompts) if found else 0) - SHARD_ROWS)
        return found

    async def _able(self) -> None:
        await self._engine.ready()
        await self._health.ready()

    async def _run(self, claim: Claim) -> None:
        run = _Run(claim, left=len(claim.rows) + len(claim.hopeless))
        with self._keeper.lease(claim.lease, run.lost):
            await self._answer_rows(run)
        # Refused, as it should be, when the shard is somebody else's by now.
        if run.left and await leases.release(self._redis, claim.lease, lost=run.died):
            how = "its engine died with it" if run.died else "given back"
            log.info("job %s: shard %d: %s", claim.lease.job_id, claim.lease.shard, how)

    async def _answer_rows(self, run: _Run) -> None:
        """Returns when every row has ended, or the lease is lost, or the engine is gone, or no row may go on."""
        try:
            await until(self._feed(run), run.lost, run.gone, self._draining)
            if not await until(_all(run.tasks), run.lost, self._abandoned) and run.lost.is_set() and run.left:
                self._metrics.leases_lost.inc()
                log.warning("job %s: the lease on shard %d is lost", run.claim.lease.job_id, run.claim.lease.shard)
        finally:
            for task in run.tasks:
                task.cancel()
            await _all(run.tasks)

    async def _feed(self, run: _Run) -> None:
        """Give the rows to the engine in input order, as it has room."""
        for outcome in run.claim.hopeless:
            log.warning("job %s: row %r is given up", run.claim.lease.job_id, outcome.index)
            run.tasks.add(asyncio.create_task(self._written(run, self._put(run, outcome))))
        prompts = run.claim.prompts
        waiting = len(prompts)
        try:
            for rows in prompts:
                await self._appetite.enter()
                waiting -= 1
                self._appetite.waits(-1)
                run.tasks.add(asyncio.create_task(self._end(run, rows)))
        finally:
            self._appetite.waits(-waiting)

    async def _end(self, run: _Run, rows: Sequence[Row]) -> None:
        """Bring a row to its end and write it, for its copies, too; cancelled, it leaves what is not written."""
        first, *copies = rows
        try:
            with self._metrics.rows_in_flight.track_inprogress():
                outcome, ending = await self._outcome(first, run.claim.lease.job_id)
        except EngineDown:
            run.gone.set()
            return
        except EngineDead:
            run.died = not self._abandoned.is_set()
            run.gone.set()
            return
        finally:
            self._appetite.leave()
        written = self._put(run, outcome)
        same = [(copy, ending) for copy in copies]
        del outcome, ending  # the buffer may put the line on disk, and it must not stay in memory for our sake
        await self._written(run, written)
        for at in range(0, len(same), _COPIES_AT_ONCE):
            some = [self._put(run, _copied(*each)) for each in same[at : at + _COPIES_AT_ONCE]]
            await asyncio.gather(*(self._written(run, each) for each in some))

    def _put(self, run: _Run, outcome: Outcome) -> asyncio.Task[bool]:
        return asyncio.create_task(self._buffer.put(run.claim.lease, outcome))

    async def _written(self, run: _Run, written: asyncio.Task[bool]) -> None:
        """Returns when the end of a row is in Redis; what is answered is kept, whatever ends its shard."""
        try:
            ours = await asyncio.shield(written)
            run.left -= ours  # read after the wait: others write meanwhile
        except asyncio.CancelledError:
            await written
            raise

    async def _outcome(self, row: Row, job: str) -> tuple[Outcome, Answer | RowFault]:
        """The end of a row, and what led to it."""
        backoff = Backoff(first=0.5)
        for left in reversed(range(_TRIES)):
            try:
                answer = await self._engine.answer(row, job)
                return fit(row, Outcome.answered(row, answer)), answer
            except EngineDown:
                if left < _TRIES - 1:
                    raise EngineDead("the engine died after it had failed on the row") from None
                raise
            except EngineDead:
                raise
            except RowError as error:
                fault = error.fault
                if not isinstance(error, TransientError):
                    break
            except Exception:
                log.exception("a row could not be answered; this is a bug")
                fault = RowFault("internal_error", "the worker failed on this row; its log says why")
            if left:
                await backoff.wait()
        return _failed(row, fault), fault


def _failed(row: Row, fault: RowFault) -> Outcome:
    return Outcome.failed_row(row.index, row.line, row.custom_id, fault, row.file)


def _copied(row: Row, ending: Answer | RowFault) -> Outcome:
    """The end of a row that cost nothing, because an equal one was answered."""
    if isinstance(ending, RowFault):
        return _failed(row, ending)
    return replace(fit(row, Outcome.answered(row, ending)), prompt_tokens=0, completion_tokens=0)


async def _all(tasks: Collection[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)
