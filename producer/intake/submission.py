"""A source of lines becomes a job: parsed, checked for double ids, staged, and committed all at once."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from producer.intake.digest import JobDigest
from producer.intake.lines import Line, TooLong
from producer.intake.reading import DuplicateIds, OnDuplicate, read_rows
from producer.intake.rows import Reject
from producer.intake.sources import Source, hint
from producer.record import jobs
from producer.record.connection import REACH_SECONDS, heed_cancel
from producer.record.jobs import JobOptions, Origin
from producer.record.models import JobState, Outcome
from producer.record.submission import Growth, JobMoved, Plan, StartAgain, Submission

__all__ = ["AppendRefused", "DuplicateIds", "NothingReadable", "Submitted", "submit_lines"]

#: Rows after which whatever else the event loop does gets its turn: a few milliseconds.
_TURN_ROWS = 256

#: The same again may well become a job: it can be continued. After all other errors it is refused.
_CUT_SHORT = (KeyboardInterrupt, SystemExit, asyncio.CancelledError, RedisError, OSError)


class NothingReadable(Exception):  # noqa: N818 - a finding about the input
    """Not one line can be used; the message says why the first cannot."""


class AppendRefused(Exception):  # noqa: N818 - a finding about the input and the job
    """The rows cannot be added to the job; the message says why, and what can be done."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submission.

    Attributes:
        job_id: the job that stands for the rows.
        state: where it is by now.
        rows: all non-blank lines, the `invalid` ones included.
        invalid: those that were refused; in an appended submission, of the new rows.
        resumed: the job was there before, with just these rows.
        continued: rows that a submission had staged which was cut short.
        copies: rows that get the answer of an equal one before them (`dedupe`).
        appended: rows that are new in a job that was there before.
        differs_from: the newest job of the same name that has other rows, or asks for something else; "" where there
            is none.
        extends: the newest job of the same name that has the first of these rows, and asks for the same; or "".
        extended_rows: how many rows that one has.
    """

    job_id: str
    state: JobState
    rows: int
    invalid: int
    resumed: bool
    continued: int = 0
    copies: int = 0
    appended: int = 0
    differs_from: str = ""
    extends: str = ""
    extended_rows: int = 0


async def submit_lines(
    redis: Redis,
    source: Source,
    *,
    model: str,
    name: str,
    new: bool = False,
    options: JobOptions | None = None,
    defaults: dict[str, Any] | None = None,
    on_duplicate: OnDuplicate = "refuse",
    dedupe: bool = False,
    append: str | None = None,
    say: Callable[[str], Any] = lambda _: None,
) -> Submitted:
    """Submit every line of `source` as one job; memory does not grow with it.

    The same rows with the same `defaults` for the same model give the job that was made of them before (`resumed`),
    unless `new`; it keeps the options that it has. A submission that was cut short is continued by the next one with
    the same rows, where the source can be read from the start again.

    Args:
        redis: where.
        source: the rows.
        model: what they are answered by.
        name: the job's, for people.
        new: make another job even if there is one of the same rows.
        options: how the job is treated.
        defaults: parameters of every row that does not say otherwise.
        on_duplicate: what becomes of a `custom_id` that is there twice.
        dedupe: rows with the same request get one answer.
        append: a job that has the first of these rows, to which the others are added. It keeps what it is: `model`,
            `name`, `new`, `options` and `dedupe` are not heeded, and `defaults` must be its own, or none.
        say: hears when Redis goes away and is waited for, and when rows need not be sent again.

    Raises:
        DuplicateIds, NothingReadable, SourceError: the input is refused; nothing of it stays.
        AppendRefused: the rows cannot be added to the job; it is as it was.
        SubmissionLost: Redis lost what it had got; nothing of it can run.
        redis.exceptions.RedisError: Redis failed, and most likely nothing of it can run; the same again tells.
    """
    plan = Plan(model, name, options or JobOptions(), defaults, dedupe, continues=source.reopens)
    earlier: list[Origin] = []
    if append is not None:
        plan = await _growing(redis, append, defaults, continues=source.reopens)
    elif source.reopens:
        earlier = await jobs.namesakes(redis, name)
    useless: set[str] = set()
    while True:
        try:
            return await _Attempt(redis, source, plan, on_duplicate, earlier, useless, say).run(insist=new)
        except StartAgain as again:
            useless.add(again.job_id)


async def _growing(redis: Redis, job_id: str, defaults: dict[str, Any] | None, *, continues: bool) -> Plan:
    """What is submitted to add rows to a job.

    Raises:
        AppendRefused: none can be added to it.
    """
    job = await jobs.origin(redis, job_id)
    if job is None:
        raise AppendRefused(f"there is no job {job_id}")
    if job.state is JobState.SUBMITTING:
        raise AppendRefused(f"job {job_id} is still being submitted: submit all its rows first")
    if job.state is JobState.CANCELLED:
        raise AppendRefused(f"job {job_id} is cancelled: no row of it will be answered; submit the file as a new job")
    if job.defaults is None:
        raise AppendRefused(f"somebody has damaged what the rows of job {job_id} ask for: submit the file as a new job")
    if defaults and defaults != job.defaults:
        raise AppendRefused(f"job {job_id} was submitted with other defaults: leave them out, it keeps its own")
    growth = Growth(job_id, job.rows, job.identity)
    return Plan(job.model, job.name, JobOptions(), job.defaults or None, job.dedupe, growth, continues)


@dataclass(slots=True)
class _Attempt:
    """One reading of the source, to its end or to the point where another must begin."""

    redis: Redis
    source: Source
    plan: Plan
    on_duplicate: OnDuplicate
    earlier: list[Origin]
    useless: Collection[str]
    say: Callable[[str], Any]
    rows: int = 0
    first_fault: str = ""
    digest: JobDigest = field(default_factory=JobDigest)
    extends: Origin | None = None

    async def run(self, *, insist: bool) -> Submitted:
        """As `submit_lines`; and `StartAgain` when what another one staged is not the start of these rows."""
        staged = Submission(
            self.redis,
            self.plan,
            digest=self.digest.so_far,
            but=self.useless,
            say=self.say,
        )
        try:
            await self._stage(staged)
            self._check(staged)
            heed_cancel()  # an interrupted submission must not end as a job
            if self.plan.growth and not staged.rows:
                return await self._nothing_new(self.plan.growth)
            job_id = await staged.commit(self._identity(self.plan), insist=insist)
        except BaseException as error:
            # Where Redis is away, the next one waits a moment, and `sweep` removes it a day later.
            with suppress(RedisError, TimeoutError):
                async with asyncio.timeout(REACH_SECONDS):
                    await self._leave(staged, error)
            if isinstance(error, JobMoved):
                raise self._moved() from None
            raise
        return await self._done(staged, job_id)

    async def _stage(self, staged: Submission) -> None:
        marks = self._marks()
        start = self.plan.growth.rows if self.plan.growth else 0
        for line, row in read_rows(self.source, self.on_duplicate):
            if self.rows in marks:
                self._look_back(marks[self.rows])
            self.rows += 1
            if isinstance(row, Reject):
                self._refused(line, row)
                full = row.index >= start and staged.put_refused(_outcome(row))
            else:
                text = row.to_json().encode()
                self.digest.update(text)
                full = row.index >= start and staged.put(row, text)
            if full:
                await staged.flow()
            if self.rows % _TURN_ROWS == 0:
                await asyncio.sleep(0)  # rows that are staged already are not sent, and take long all the same
        self._look_back(marks.get(self.rows, []))

    def _refused(self, line: Line | TooLong, row: Reject) -> None:
        self.digest.update_refused(line)
        if not self.first_fault:
            seems = hint(line.data) if isinstance(line, Line) else ""
            self.first_fault = f"line {row.line}: {row.fault.message}{seems}"

    def _marks(self) -> dict[int, list[Origin]]:
        """After how many rows they are to be held against which jobs."""
        marks: dict[int, list[Origin]] = {}
        for job in self.earlier:
            marks.setdefault(job.rows, []).append(job)
        if self.plan.growth:
            marks[self.plan.growth.rows] = []
        return marks

    def _look_back(self, earlier: list[Origin]) -> None:
        """See whether the rows so far are those of a job."""
        growth = self.plan.growth
        if growth and self.rows == growth.rows and self._identity(self.plan) != growth.identity:
            raise AppendRefused(
                f"its first {growth.rows} rows are not those of job {growth.job_id}: rows can only be added behind "
                "them; submit the file as a new job"
            )
        for job in earlier:
            same = (job.model, job.defaults or {}, job.dedupe)
            if same == (self.plan.model, self.plan.defaults or {}, self.plan.dedupe) and job.identity == self._identity(
                self.plan
            ):
                self.extends = job

    def _identity(self, plan: Plan) -> str:
        return self.digest.hexdigest(plan.model, plan.defaults or {}, dedupe=plan.dedupe)

    def _check(self, staged: Submission) -> None:
        """Raises unless there is a job in what was read."""
        growth = self.plan.growth
        if growth and self.rows < growth.rows:
            raise AppendRefused(
                f"it has {self.rows} rows, job {growth.job_id} has {growth.rows}: rows can only be added behind them"
            )
        if growth is None and staged.rows == staged.invalid:
            if not staged.rows:
                raise NothingReadable("there are no rows in it")
            raise NothingReadable(f"none of its {staged.rows} rows can be used; {self.first_fault}")

    async def _leave(self, staged: Submission, error: BaseException) -> None:
        if self.source.reopens and isinstance(error, _CUT_SHORT):
            await staged.let_go()
        else:
            await staged.discard()

    def _moved(self) -> AppendRefused:
        assert self.plan.growth is not None
        return AppendRefused(f"job {self.plan.growth.job_id} was changed meanwhile: the same again says what it is now")

    async def _nothing_new(self, growth: Growth) -> Submitted:
        return Submitted(growth.job_id, await self._state(growth.job_id), self.rows, 0, resumed=True)

    async def _state(self, job_id: str) -> JobState:
        with suppress(RedisError):  # away again: the job is there all the same
            if found := await jobs.status(self.redis, job_id):
                return found.state
        return JobState.QUEUED

    async def _done(self, staged: Submission, job_id: str) -> Submitted:
        growth = self.plan.growth
        resumed = growth is None and job_id != staged.job_id
        is_new = growth is None and not resumed
        others = [job for job in self.earlier if is_new and job.identity != self._identity(self.plan)]
        extends = self.extends if is_new and self.extends in others else None
        return Submitted(
            job_id,
            await self._state(job_id),
            self.rows,
            staged.invalid,
            resumed=resumed,
            continued=staged.continued,
            copies=staged.copies,
            appended=staged.rows if growth else 0,
            differs_from=others[-1].job_id if others else "",
            extends=extends.job_id if extends else "",
            extended_rows=extends.rows if extends else 0,
        )


def _outcome(row: Reject) -> Outcome:
    return Outcome.failed_row(row.index, row.line, row.custom_id, row.fault, row.file)
