"""`producer watch`: a job's progress until it has ended."""

import asyncio
import time
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from producer.cli.common import ExitCode, JobArgument, RedisOption, find_job, people, redis_at, run, say
from producer.cli.waiting import POLL_SECONDS, Doubts, stopped_itself
from producer.record.jobs import JobStatus

#: How often a line is printed where there is no terminal to draw a bar on.
LINE_SECONDS = 5.0


def watch(job: JobArgument, redis: RedisOption = None) -> None:
    """Watch a job until it has ended (exit 0: every row answered, 1: some failed). Ctrl-C stops only the watching.

    A paused job is waited for; one that paused itself ends the watching with exit 1.
    """
    run(_watch(job, redis))


async def _watch(job_id: str, url: str | None) -> int:
    async with redis_at(url) as redis:
        seen = await find_job(redis, job_id)
        with _Bar(seen) if people.is_terminal else _Lines(seen) as view:
            doubts = Doubts()
            while not seen.state.ended:
                await doubts.patiently(doubts.voice, redis, seen)
                if stopped_itself(seen):
                    break
                await asyncio.sleep(POLL_SECONDS)
                seen = await doubts.patiently(find_job, redis, job_id)
                view.show(seen)
    return ExitCode.SOME_ROWS_FAILED if seen.failed or seen.done < seen.rows else ExitCode.FINE


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
