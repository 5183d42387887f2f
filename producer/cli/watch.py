"""`producer watch`: a job's progress until it has ended."""

import asyncio
import time
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from producer.cli.common import ExitCode, JobArgument, RedisOption, find_job, people, redis_at, run, say
from producer.record import fleet
from producer.record.jobs import JobStatus
from producer.record.models import TARGET, JobState

#: How often Redis is asked.
POLL_SECONDS = 0.25

#: How often a line is printed where there is no terminal to draw a bar on.
LINE_SECONDS = 5.0

#: How often a watcher looks whether anybody works on the job.
PATIENCE_SECONDS = 10.0


def watch(job: JobArgument, redis: RedisOption = None) -> None:
    """Watch a job until it has ended (exit 0: every row answered, 1: some failed). Ctrl-C stops only the watching."""
    run(_watch(job, redis))


async def _watch(job_id: str, url: str | None) -> int:
    async with redis_at(url) as redis:
        seen = await find_job(redis, job_id)
        with _Bar(seen) if people.is_terminal else _Lines(seen) as view:
            doubts = _Doubts()
            while not seen.state.ended:
                await asyncio.sleep(POLL_SECONDS)
                try:
                    seen = await find_job(redis, job_id)
                    await doubts.voice(redis, seen)
                except (RedisConnectionError, RedisTimeoutError) as error:
                    doubts.say_once(f"Redis is away, waiting for it: {error}")
                view.show(seen)
    return ExitCode.SOME_ROWS_FAILED if seen.failed or seen.done < seen.rows else ExitCode.FINE


class _Doubts:
    """Says why a job may not be moving: once, and again when it was different in between."""

    def __init__(self) -> None:
        self._said = ""
        self._due = time.monotonic() + PATIENCE_SECONDS

    async def voice(self, redis: Redis, job: JobStatus) -> None:
        """Look, now and then, whether anybody works on the job."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + PATIENCE_SECONDS
            self.say_once(_why_it_waits(job, {card.model for card in await fleet.living(redis)}))

    def say_once(self, doubt: str) -> None:
        """Say it, unless it was said last; nothing is the end of a doubt."""
        if doubt and doubt != self._said:
            say(doubt)
        self._said = doubt


def _why_it_waits(job: JobStatus, served: set[str]) -> str:
    """Why no row of the job can end now; empty when some can."""
    if job.state is JobState.SUBMITTING:
        return f"job {job.job_id} is still being submitted (what a dead producer left is removed after a day)"
    if job.state.ended or job.model in served or (served and job.model == TARGET):
        return ""
    working = f"those at work serve {', '.join(sorted(served))}" if served else "none is running"
    return f"no worker serves model {job.model!r} ({working}); the job waits"


@dataclass
class _Rate:
    """Tokens a second since the watching began; of an ended job, over its whole life."""

    first: JobStatus
    started: float

    def __call__(self, now: JobStatus) -> float:
        if now.started and now.ended:
            return now.completion_tokens / max(now.ended - now.started, 1e-3)
        return (now.completion_tokens - self.first.completion_tokens) / max(time.monotonic() - self.started, 1e-9)


class _Bar:
    """A progress bar that counts rows which are in Redis, those from before the watching included."""

    def __init__(self, job: JobStatus) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]} failed, {task.fields[rate]:.0f} tokens/s, left"),
            TimeRemainingColumn(),
            console=people,
        )
        self._rate = _Rate(job, time.monotonic())
        self._task = self._progress.add_task(
            job.job_id, total=job.rows, completed=job.done, failed=job.failed, rate=0.0
        )

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, job: JobStatus) -> None:
        self._progress.update(self._task, total=job.rows, completed=job.done, failed=job.failed, rate=self._rate(job))


class _Lines:
    """A line now and then, when there is something new to say, and one at the end."""

    def __init__(self, job: JobStatus) -> None:
        self._last = job
        self._printed = ""
        self._rate = _Rate(job, time.monotonic())
        self._due = time.monotonic() + LINE_SECONDS

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        self._print()

    def show(self, job: JobStatus) -> None:
        self._last = job
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_SECONDS
            self._print()

    def _print(self) -> None:
        job = self._last
        rows = f"{job.done}/{job.rows} rows, {job.failed} failed"
        line = f"{job.job_id}: {job.state}, {rows}, {self._rate(job):.0f} tokens/s"
        if line != self._printed:
            say(line)
        self._printed = line
