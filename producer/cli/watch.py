"""`producer watch`: a job's progress until it has ended."""

import asyncio
import time
from contextlib import AbstractContextManager
from typing import Annotated

import typer
from redis.asyncio import Redis

from producer.cli.common import ExitCode, JobArgument, RedisOption, find_job, people, redis_at, run, say
from producer.cli.waiting import Doubts
from producer.cli.watch_views import JsonLines, Lines, View
from producer.following import POLL_SECONDS
from producer.progress import course
from producer.progress.course import Course, Moment
from producer.progress.workers import Crew, WorkerAtWork
from producer.record import fleet, provenance
from producer.record.jobs import JobStatus
from producer.record.models import TARGET
from producer.stopped import stopped_itself

#: How often workers are asked what they do; they say it every 2.5 s.
_CREW_SECONDS = 1.0


def watch(
    job: JobArgument,
    json: Annotated[
        bool, typer.Option("--json", help="Print an object of JSON on a line of its own, every 5 s and at the end.")
    ] = False,
    redis: RedisOption = None,
) -> None:
    """Watch a job until it has ended.

    Exit code 0: every row is answered, 1: some failed. Ctrl-C stops only the watching. A paused job is waited for;
    one that paused itself ends the watching with exit code 1.

    On a terminal there is a bar of the rows that are in Redis, and a line for each worker that serves the job's model;
    elsewhere a line every 5 s. Rates, accepted drafts and overlap (how much of the draft time that could be hidden
    behind verifying was) are those of the last half minute or so, at the end those of the whole job.
    """
    run(_watch(job, as_json=json, url=redis))


async def _watch(wanted: str, *, as_json: bool, url: str | None) -> int:
    async with redis_at(url) as redis:
        return await follow(redis, (await find_job(redis, wanted)).job_id, as_json=as_json)


async def follow(redis: Redis, job_id: str, *, as_json: bool = False) -> int:
    """Show the job's progress until it has ended, or has paused itself; returns the exit code.

    Raises:
        Refused: the job is not there (any more).
    """
    doubts = Doubts()
    try:
        with _view(as_json=as_json) as view:
            job = await _until_the_end(doubts, redis, job_id, view)
            view.end(await _whole(doubts, redis, job, view))
    except (asyncio.CancelledError, KeyboardInterrupt):
        say(f"job {job_id} goes on; `producer watch {job_id}` watches it again")
        raise
    return ExitCode.SOME_ROWS_FAILED if job.failed or job.done < job.rows else ExitCode.FINE


def _view(*, as_json: bool) -> "AbstractContextManager[View]":
    if as_json:
        return JsonLines()
    if people.is_terminal:
        from producer.cli.watch_live import Live  # noqa: PLC0415 - what draws is needed only here

        return Live(people)
    return Lines()


async def _until_the_end(doubts: Doubts, redis: Redis, job_id: str, view: View) -> JobStatus:
    seen, crew = Course(), _AskedCrew(redis)
    while True:
        job = await doubts.patiently(find_job, redis, job_id)
        view.show(seen.see(time.monotonic(), job, await doubts.patiently(crew.of, job)))
        if job.state.ended:
            return job
        await doubts.patiently(doubts.voice, redis, job)
        if stopped_itself(job):
            return job
        await asyncio.sleep(POLL_SECONDS)


async def _whole(doubts: Doubts, redis: Redis, job: JobStatus, view: View) -> Moment:
    """The last moment: of an ended job, over its whole life."""
    assert view.last is not None
    if not job.state.ended:
        return view.last
    return course.ended(job, await doubts.patiently(provenance.engines, redis, job.job_id))


class _AskedCrew:
    """The workers that serve a job, asked now and then."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._crew = Crew()
        self._workers = self._crew.hear(())
        self._due = time.monotonic()

    async def of(self, job: JobStatus) -> list[WorkerAtWork]:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _CREW_SECONDS
            cards = await fleet.living(self._redis)
            self._workers = self._crew.hear(card for card in cards if job.model in (card.model, TARGET))
        return self._workers
