"""A job as a program holds it: asked, waited for, read and steered."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from redis.asyncio import Redis

from producer.errors import JobPaused, NoSuchJob, Refused
from producer.following import POLL_SECONDS, looks
from producer.intake.submission import Submitted
from producer.record import control, fetch, jobs
from producer.record.connection import plain_errors
from producer.record.fetch import Moved, Order
from producer.record.jobs import JobStatus
from producer.record.models import JobState
from producer.record.outage import ANY_WEATHER, outlast
from producer.result import Result, result_of
from producer.results.shapes import split_lines
from producer.stopped import stopped_itself, why_stopped

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Link:
    """A client's way to Redis: the connection, its URL for messages, and who hears that Redis is waited for."""

    redis: Redis
    url: str
    say: Callable[[str], Any]

    def plainly(self) -> AbstractAsyncContextManager[None]:
        """Whatever Redis says inside becomes a `RedisUnavailable`."""
        return plain_errors(self.url)

    async def patiently(self, ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What Redis answers; one that is away is waited for, as long as it takes."""
        return await outlast(lambda: ask(*args, **kwargs), say=self.say, weather=ANY_WEATHER)


class Job:
    """A job in Redis. It goes on whatever happens to this object; `client.job(id)` gives another one.

    Every method raises `NoSuchJob` when the job is gone, and `RedisUnavailable` when Redis cannot be reached; those
    that wait for the job wait for Redis, too.

    Attributes:
        id: what `producer` calls it.
        submitted: what became of the submission that this object came from; None where it came from a look-up.
    """

    def __init__(self, link: Link, job_id: str, submitted: Submitted | None = None) -> None:
        self.id = job_id
        self.submitted = submitted
        self._link = link

    def __repr__(self) -> str:
        """For people who debug."""
        return f"<{type(self).__name__} {self.id}>"

    async def status(self) -> JobStatus:
        """Where it stands: its state, its counters of rows and tokens, when it began and ended."""
        async with self._link.plainly():
            return self._there(await jobs.status(self._link.redis, self.id))

    async def results(self, *, order: Order = "done", follow: bool = True) -> AsyncGenerator[Result, None]:
        """Each row's result, failed rows included.

        Args:
            order: `done`: as rows end. `input`: as they were submitted, which with `follow` begins when all have ended.
            follow: until the job has ended; else those that are there now.

        Raises:
            JobPaused: it has paused itself, and all results that there are were given.
            Refused: rows were retried or consumed meanwhile: some results might be given twice or not at all.
        """
        async with aclosing(self.result_pages(order=order, follow=follow)) as pages:
            async for page in pages:
                for result in page:
                    yield result

    async def result_pages(self, *, order: Order = "done", follow: bool = True) -> AsyncGenerator[list[Result], None]:
        """The same as `results`, as many at a time as came with one answer of Redis."""
        async with self._link.plainly():
            if follow and order == "input":
                await self.wait()
            link = self._link
            place = await link.patiently(fetch.first, link.redis, self.id, order=order)
            try:
                async with aclosing(looks(link, link.redis, self.id, place, order=order, follow=follow)) as found:
                    async for job, page in found:
                        if page.count:
                            yield [result_of(line) for line in split_lines(page.lines)]
                        elif follow:
                            self._heed_pause(job)
            except Moved as moved:
                raise Refused(f"{moved}; read them again") from None

    async def progress(self, *, every: float = 1.0) -> AsyncGenerator[JobStatus, None]:
        """Where the job stands, now and every so many seconds, up to its end, whose status is the last.

        Raises:
            JobPaused: it has paused itself. One that a user paused is waited for.
        """
        async with self._link.plainly():
            while True:
                job = self._there(await self._ask(jobs.status))
                yield job
                if job.state.ended:
                    return
                self._heed_pause(job)
                due = time.monotonic() + every
                while not job.state.ended and (left := due - time.monotonic()) > 0:
                    await asyncio.sleep(min(left, POLL_SECONDS))
                    job = self._there(await self._ask(jobs.status))  # its end is no reason to wait on

    async def wait(self, *, timeout: float | None = None) -> JobStatus:
        """Wait until it has ended; its status then.

        Raises:
            TimeoutError: it has not, in so many seconds; nothing else changes by that.
            JobPaused: it has paused itself.
        """
        async with asyncio.timeout(timeout), aclosing(self.progress(every=POLL_SECONDS)) as seen:
            async for job in seen:
                last = job
        return last

    async def cancel(self) -> JobStatus:
        """End it: rows that are done stay, all others are dropped, those in an engine within seconds.

        A job that was still being submitted is gone then; its last status is returned.

        Raises:
            Refused: it has ended already.
        """
        async with self._link.plainly():
            redis = self._link.redis
            job = await self.status()
            if not await control.cancel(redis, self.id):
                state = (await self.status()).state
                raise Refused(f"job {self.id} is {state} already; `producer purge {self.id}` removes it")
            while await control.sweep(redis):
                pass
            return await jobs.status(redis, self.id) or job

    async def pause(self) -> JobStatus:
        """Let workers take no more of its rows; those that they have run to their end.

        Raises:
            Refused: it is not queued or running.
        """
        async with self._link.plainly():
            paused = await control.pause(self._link.redis, self.id)
            job = await self.status()
        if paused:
            return job
        if job.state is JobState.SUBMITTING:
            raise Refused(f"job {self.id} is still being submitted; no worker can take rows of it yet")
        raise Refused(f"job {self.id} is {job.state} already")

    async def resume(self) -> JobStatus:
        """Let it go on; one that paused itself because of errors counts them anew.

        Raises:
            Refused: it is not paused.
        """
        async with self._link.plainly():
            resumed = await control.resume(self._link.redis, self.id)
            job = await self.status()
        if resumed:
            return job
        how = f"; `producer retry {self.id}` runs failed rows again" if job.state is JobState.COMPLETED else ""
        raise Refused(f"job {self.id} is not paused but {job.state}{how}")

    async def retry(self) -> int:
        """Run its failed rows again; how many they are. Not those refused at submission, nor those that were consumed.

        Raises:
            Refused: there are none that can be retried.
        """
        async with self._link.plainly():
            before = await self.status()
            if retried := await control.retry(self._link.redis, self.id):
                return retried
        raise Refused(f"no row of job {self.id} can be retried: {_why_no_retry(before)}")

    async def purge(self) -> None:
        """Remove it from Redis, results and all. Nothing brings it back.

        Raises:
            Refused: it has not ended.
        """
        async with self._link.plainly():
            job = await self.status()
            if not await control.purge(self._link.redis, self.id):
                raise not_ended(job)
            while await control.sweep(self._link.redis):
                pass

    async def _ask(self, ask: Callable[[Redis, str], Awaitable[T]]) -> T:
        return await self._link.patiently(ask, self._link.redis, self.id)

    def _there(self, found: T | None) -> T:
        if found is None:
            raise NoSuchJob(f"there is no job {self.id!r} (any more)")
        return found

    def _heed_pause(self, job: JobStatus) -> None:
        if stopped_itself(job):
            raise JobPaused(why_stopped(job))


def not_ended(job: JobStatus) -> Refused:
    """Why a job is not purged."""
    return Refused(f"job {job.job_id} is {job.state}; `producer cancel {job.job_id}` would end it")


def _why_no_retry(job: JobStatus) -> str:
    if job.state is JobState.CANCELLED:
        return "it is cancelled (the same file submitted again is a new job)"
    if not job.failed:
        return "none has failed"
    consumed = " or were consumed" if job.consumed else ""
    return f"the {job.failed} that failed were refused at submission{consumed}; `producer errors {job.job_id}` says why"
