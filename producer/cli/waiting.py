"""Waiting for a job: what may hold it up is said once, and an absent Redis is waited for."""

import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from redis.asyncio import Redis

from producer.cli.common import say
from producer.record import fleet
from producer.record.jobs import JobStatus
from producer.record.models import TARGET, JobState
from producer.record.outage import ANY_WEATHER, outlast
from producer.stopped import stopped_itself, why_stopped

#: How often one who waits looks whether anybody works on the job.
_PATIENCE_SECONDS = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class Doubts:
    """Says why a job may not be moving: once, and again when it was different in between."""

    def __init__(self) -> None:
        self._said = ""
        self._due = time.monotonic() + _PATIENCE_SECONDS

    async def voice(self, redis: Redis, job: JobStatus) -> None:
        """Say that the job is paused; look, now and then, whether anybody works on it."""
        if job.state is JobState.PAUSED:
            self.say_once(_paused(job))
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + _PATIENCE_SECONDS
            self.say_once(_why_it_waits(job, {card.model for card in await fleet.living(redis)}))

    def say_once(self, doubt: str) -> None:
        """Say it, unless it was said last; nothing is the end of a doubt."""
        if doubt and doubt != self._said:
            say(doubt)
        self._said = doubt

    async def patiently(self, ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask Redis until it answers.

        Raises:
            redis.exceptions.RedisError: one that no waiting helps against.
        """
        return await outlast(lambda: ask(*args, **kwargs), say=self.say_once, weather=ANY_WEATHER)


def _paused(job: JobStatus) -> str:
    if stopped_itself(job):
        return why_stopped(job)
    return f"job {job.job_id} is paused; `producer resume {job.job_id}` lets it go on"


def _why_it_waits(job: JobStatus, served: set[str]) -> str:
    """Why no row of the job can end now; empty when some can."""
    if job.state is JobState.SUBMITTING:
        return f"job {job.job_id} is still being submitted (what a dead producer left is removed after a day)"
    if job.state.ended or job.model in served or (served and job.model == TARGET):
        return ""
    working = f"those at work serve {', '.join(sorted(served))}" if served else "none is running"
    return f"no worker serves model {job.model!r} ({working}); the job waits"
