"""A job on its way into the record: rows are staged, invisible to workers, and committed all at once."""

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from producer.record import scripts, takeover
from producer.record.control import sweep
from producer.record.jobs import JobOptions
from producer.record.models import Outcome, Row, dumps
from producer.record.outage import outlast
from producer.record.packing import Call, Copies, Packing

#: How long a submission waits for a Redis that goes away.
_AWAY_SECONDS = 60.0

#: Changes whenever rows are cut into calls in another way: what another version began is not continued.
_PACKING = 2

#: What scripts answer when there are other rows than were staged, and how `stage` says it earlier.
_OTHER_ROWS = -1
_ROWS_MISSING = "an earlier part of the job is missing"
#: Another producer goes on with it.
_TAKEN_OVER = -2
#: The job that rows were to be added to is not as it was.
_MOVED = -3


class SubmissionLost(Exception):  # noqa: N818 - a state that the caller reports
    """What was staged is not all there any more; the message says what to do."""


class JobMoved(Exception):  # noqa: N818 - a state that the caller reports
    """The job that rows were to be added to has changed meanwhile; the message says what to do."""


class StartAgain(Exception):  # noqa: N818 - what the caller does next
    """What another submission has staged is not what this one reads: read from the start, without it."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id


@dataclass(frozen=True, slots=True)
class Growth:
    """A job that rows are added to, as it was seen: they go on from its `rows`, and change its `identity`."""

    job_id: str
    rows: int
    identity: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is submitted, but for the rows.

    Attributes:
        model: what it will be answered by.
        name: for people.
        options: how it is treated.
        defaults: parameters of every row that does not say otherwise; stored once, and put into the rows when they are
            claimed.
        dedupe: rows with the same request get one answer.
        growth: the rows are added to this job.
        continues: the rows can be read again: the submission continues one of the same rows that was cut short, and may
            be continued.
    """

    model: str
    name: str
    options: JobOptions = field(default_factory=JobOptions)
    defaults: dict[str, Any] | None = None
    dedupe: bool = False
    growth: Growth | None = None
    continues: bool = False

    def hash(self) -> str:
        """Of what decides how rows are staged: only what has the same hash may be continued."""
        growth = [self.growth.job_id, self.growth.rows, self.growth.identity] if self.growth else None
        cut = [_PACKING, Submission.BUFFERED_BYTES]
        parts = [cut, self.model, self.defaults or {}, self.dedupe, growth, self.continues]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def treatment(self) -> list[str | int]:
        """Name and options, as scripts want them."""
        asked = self.options
        rate = "" if asked.max_error_rate is None else str(asked.max_error_rate)
        ttl = "" if asked.ttl_s is None else asked.ttl_s * 1000
        return [self.name, asked.priority, rate, ttl]


class Submission:
    """A job being staged: `add` rows in order, then `commit`; or `discard`, or `let_go`.

    Holds at most a shard of rows and twice `BUFFERED_BYTES` of them: what is on its way, and what is gathered
    meanwhile. Everything else is in Redis. One that goes away is waited for, a minute long, and `say` is told.

    Attributes:
        job_id: the job; "" as long as it is not known.
        owner: what says in Redis that it is this producer's.
        rows: that were added.
        invalid: those of them that ended at intake.
        copies: those of them that get the answer of an earlier row.
        continued: those of them that another submission had staged.
    """

    #: Staged text that is gathered before it is sent: a round trip's worth.
    BUFFERED_BYTES = 1 << 20

    def __init__(
        self,
        redis: Redis,
        plan: Plan,
        *,
        digest: Callable[[], str] = lambda: "",
        but: Collection[str] = (),
        say: Callable[[str], Any] = lambda _: None,
    ) -> None:
        """Nothing is in Redis until the first rows are.

        Args:
            redis: where.
            plan: what is submitted.
            digest: of all rows so far, those that were not added included; asked before more are read.
            but: jobs that are not to be continued.
            say: hears when Redis goes away and is waited for, or another producer.
        """
        self.redis = redis
        self.plan = plan
        self.job_id = ""
        self.rows = self.invalid = self.copies = self.continued = 0
        self._digest = digest
        self._but = but
        self._say = say
        self.owner = secrets.token_hex(8)
        self._left: takeover.Left | None = None
        self._packing = Packing(self.BUFFERED_BYTES)
        self._equal = Copies() if plan.dedupe else None
        self._calls: list[Call] = []
        self._bytes = 0
        self._sending: asyncio.Task[None] | None = None

    @classmethod
    async def begin(
        cls,
        redis: Redis,
        *,
        model: str,
        name: str,
        options: JobOptions | None = None,
        defaults: dict[str, Any] | None = None,
        dedupe: bool = False,
        say: Callable[[str], Any] = lambda _: None,
    ) -> "Submission":
        """One whose job is there from the start."""
        made = cls(redis, Plan(model, name, options or JobOptions(), defaults, dedupe), say=say)
        await made._begin()
        return made

    async def add(self, row: Row, text: str | bytes) -> None:
        """Stage a good row; `text` is its `to_json()`."""
        if self.put(row, text.encode() if isinstance(text, str) else text):
            await self.flow()

    async def refuse(self, outcome: Outcome) -> None:
        """Stage a row that ended at intake: its error line is a result already."""
        if self.put_refused(outcome):
            await self.flow()

    def put(self, row: Row, text: bytes) -> bool:
        """As `add`, but nothing is sent: True when it is time for `flow`."""
        self.rows += 1
        if self._equal is None:
            return self._packing.add(row.index, text)
        return self._equal.put(self._packing, row.request_key(), row.index, text)

    def put_refused(self, outcome: Outcome) -> bool:
        """As `refuse`, but nothing is sent: True when it is time for `flow`."""
        self.rows += 1
        self.invalid += 1
        return self._packing.refuse(outcome.index, outcome.line)

    async def flow(self) -> None:
        """Send what there is enough of, and let what is on its way go on.

        Raises:
            StartAgain, SubmissionLost, redis.exceptions.RedisError: it must end here.
        """
        if (call := self._packing.cut(self._digest())) is not None:
            await self._gather(call)
        if self._bytes > self.BUFFERED_BYTES:
            await self._send()
        elif self._sending is not None and not self._sending.done():
            await asyncio.sleep(0)

    async def _gather(self, call: Call) -> None:
        self.copies += call.copies
        if not self.job_id and self._left is None:
            await self._open(call)
        if self._left is None:
            self._calls.append(call)
            self._bytes += call.size
        elif call.number == self._left.calls:
            await self._take_over(self._left, call)

    async def _open(self, first: Call) -> None:
        """Begin a job, or find one that is to be continued."""
        if self.plan.continues:
            self._left = await takeover.find(self.redis, self.plan.hash(), first.digest, but=self._but, say=self._say)
        if self._left is None:
            await self._begin()

    async def _begin(self) -> None:
        await sweep(self.redis)  # what killed producers left, where no worker does it
        name, *treatment = self.plan.treatment()
        defaults = dumps(self.plan.defaults) if self.plan.defaults else ""
        dedupe = "1" if self.plan.dedupe else ""
        while not self.job_id:
            job_id = base64.b32encode(secrets.token_bytes(5)).decode().lower()
            argv = [job_id, self.plan.model, name, *treatment, defaults, dedupe, self.owner, self.plan.hash()]
            if (await self._run([("begin", argv)]))[0]:
                self.job_id = job_id

    async def _take_over(self, left: takeover.Left, last: Call) -> None:
        argv = [left.job_id, left.owner, self.owner, last.rows, *self.plan.treatment()]
        if last.digest != left.digest or not (await self._run([("take_over", argv)]))[0]:
            raise StartAgain(left.job_id)
        self.job_id, self._left = left.job_id, None
        self.continued = last.rows
        self._say(f"continued: {last.rows} rows were staged before")

    async def _send(self) -> None:
        """Send what is gathered, once what was sent before has arrived.

        Rows that can be read again are at hand: more of them are parsed while these are on their way. Others may be
        waited for, for however long, and nothing would move meanwhile.
        """
        await self._arrived()
        calls, self._calls, self._bytes = self._calls, [], 0
        if calls:
            self._sending = asyncio.create_task(self._stage(calls))
            await (asyncio.sleep(0) if self.plan.continues else self._arrived())

    async def _arrived(self) -> None:
        if self._sending is not None:
            await self._sending
            self._sending = None

    async def _stage(self, calls: Sequence[Call]) -> None:
        answers = await self._run([("stage", call.argv(self.job_id, self.owner)) for call in calls])
        if _TAKEN_OVER in answers:
            raise self._taken()
        if not all(answers):
            raise self._lost()

    async def _run(self, calls: Sequence[scripts.Call]) -> list[Any]:
        """Run scripts that do nothing the second time."""
        return await outlast(lambda: self._try(calls), say=self._say, seconds=_AWAY_SECONDS)

    async def _try(self, calls: Sequence[scripts.Call]) -> list[Any]:
        try:
            return await scripts.run_many(self.redis, calls)
        except NoScriptError as error:
            if _ROWS_MISSING in str(error):  # and all of these calls were sent again already
                raise self._older() from None
            raise

    def _older(self) -> SubmissionLost:
        return SubmissionLost(f"Redis went back to an older state and lost rows of job {self.job_id}: submit it again")

    def _lost(self) -> SubmissionLost:
        return SubmissionLost(f"Redis has no job {self.job_id} in submission any more: submit it again")

    def _taken(self) -> SubmissionLost:
        return SubmissionLost(f"another submit of the same rows took job {self.job_id} over: see what became of it")

    async def commit(self, identity: str, *, insist: bool) -> str:
        """Start the job, all of it at once, or add the rows to the job that they are for. Returns the id of the job
        that stands for these rows.

        That is an earlier job when the same `identity` was committed before (and not cancelled), unless
        `insist`; this submission is discarded then.

        Raises:
            SubmissionLost: not all that was staged is there.
            JobMoved: the job that rows are for was changed meanwhile; they are staged still.
            StartAgain: there are fewer rows than another submission has.
        """
        await self.flow()
        if self._left is not None:
            raise StartAgain(self._left.job_id)
        await self._send()
        await self._arrived()
        standing = (await self._run([self._last_call(identity, insist=insist)]))[0]
        if standing is None:
            raise self._lost()
        if standing == _OTHER_ROWS:
            raise self._older()
        if standing == _TAKEN_OVER:
            raise self._taken()
        if standing == _MOVED:
            raise JobMoved("it was changed meanwhile")
        if standing != self.job_id and self.plan.growth is None:
            with suppress(RedisError):  # away again: `sweep` does it, a day later
                await self.discard()
        self._forget()
        return str(standing)

    def _last_call(self, identity: str, *, insist: bool) -> scripts.Call:
        growth = self.plan.growth
        if growth is None:
            return "commit", [self.job_id, self.owner, identity, "new" if insist else "same", self.rows]
        return "append", [
            self.job_id, self.owner, self.rows, growth.job_id, growth.identity, identity,
        ]  # fmt: skip

    async def discard(self) -> None:
        """Remove everything that was staged."""
        if await self._stopped():
            await scripts.run(self.redis, "discard", self.job_id, self.owner)
            while await sweep(self.redis):
                pass

    async def let_go(self) -> None:
        """Leave what was staged to whoever submits the same rows next."""
        if await self._stopped():
            await scripts.run(self.redis, "let_go", self.job_id, self.owner)

    async def _stopped(self) -> bool:
        """Nothing is on its way any more; True when there is a job."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            self._sending = None
        self._forget()
        return bool(self.job_id)

    def _forget(self) -> None:
        if self._equal is not None:
            self._equal.close()
