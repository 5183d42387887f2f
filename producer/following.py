"""Reading a job while it runs: page after page, until nothing more can come."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

from redis.asyncio import Redis

from producer.errors import NoSuchJob
from producer.record import fetch, jobs
from producer.record.fetch import Order, Page, Place
from producer.record.jobs import JobStatus
from producer.stopped import stopped_itself

#: How often one who waits asks Redis.
POLL_SECONDS = 0.25

P = ParamSpec("P")
T = TypeVar("T")


class Patient(Protocol):
    """Asks Redis until it answers."""

    async def patiently(self, ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What it answers."""


async def looks(
    patient: Patient, redis: Redis, job_id: str, place: Place, *, order: Order = "done", follow: bool = True
) -> AsyncGenerator[tuple[JobStatus, Page], None]:
    """The job and its next page from a place on, again and again: the page is empty when there is nothing new.

    It ends when there is nothing new and the job has ended or has paused itself; without `follow` at once then.

    Raises:
        NoSuchJob: it is gone.
        Moved: the record is not the one that was read so far.
    """
    while True:
        job = await patient.patiently(jobs.status, redis, job_id)  # before its rows: none ends in between
        page = await patient.patiently(fetch.page, redis, job_id, place, order=order)
        if job is None or page is None:
            raise NoSuchJob(f"there is no job {job_id!r} (any more)")
        if page.count or page.end == place:  # else rows without results, or any more: the next page says what follows
            yield job, page
        if page.end == place:
            if not follow or job.state.ended or stopped_itself(job):
                return
            await asyncio.sleep(POLL_SECONDS)
        place = page.end
