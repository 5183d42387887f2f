"""`producer cancel`, `pause`, `resume`, `retry`: what is done to a job that is there."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict

from redis.asyncio import Redis

from producer.cli.common import (
    ExitCode,
    JobArgument,
    JsonOption,
    RedisOption,
    Refused,
    find_job,
    print_json,
    redis_at,
    run,
    say,
)
from producer.record import control, jobs
from producer.record.jobs import JobStatus
from producer.record.models import JobState


def cancel(job: JobArgument, json: JsonOption = False, redis: RedisOption = None) -> None:
    """End a job: rows that are done stay, all others are dropped, those in an engine within seconds."""
    run(_cancel(job, as_json=json, url=redis))


def pause(job: JobArgument, json: JsonOption = False, redis: RedisOption = None) -> None:
    """Let workers take no more rows of a job; those that they have run to their end."""
    run(_toggle(control.pause, job, "paused", _why_no_pause, as_json=json, url=redis))


def resume(job: JobArgument, json: JsonOption = False, redis: RedisOption = None) -> None:
    """Let a paused job go on; one that stopped because of errors counts them anew."""
    run(_toggle(control.resume, job, "goes on", _why_no_resume, as_json=json, url=redis))


def retry(job: JobArgument, json: JsonOption = False, redis: RedisOption = None) -> None:
    """Run the failed rows of a job again, but those that were refused at submission or were consumed."""
    run(_retry(job, as_json=json, url=redis))


async def _cancel(job_id: str, *, as_json: bool, url: str | None) -> int:
    async with redis_at(url) as redis:
        job = await find_job(redis, job_id)
        if not await control.cancel(redis, job_id):
            state = (await find_job(redis, job_id)).state
            raise Refused(f"job {job_id} is {state} already; `producer purge {job_id}` removes it")
        while await control.sweep(redis):
            pass
        job = await jobs.status(redis, job_id) or job  # one in submission is gone now
    if as_json:
        print_json(asdict(job))
    elif job.state is JobState.SUBMITTING:
        say(f"job {job_id} was still being submitted; nothing of it stays")
    else:
        say(f"job {job_id} is cancelled; {job.done} of {job.rows} rows are done and stay")
    return ExitCode.FINE


async def _toggle(
    action: Callable[[Redis, str], Awaitable[bool]],
    job_id: str,
    done: str,
    why_not: Callable[[JobStatus], str],
    *,
    as_json: bool,
    url: str | None,
) -> int:
    async with redis_at(url) as redis:
        await find_job(redis, job_id)
        changed = await action(redis, job_id)
        job = await find_job(redis, job_id)
    if not changed:
        raise Refused(f"job {job_id} {why_not(job)}")
    if as_json:
        print_json(asdict(job))
    else:
        say(f"job {job_id} {done}; {job.done} of {job.rows} rows are done")
    return ExitCode.FINE


def _why_no_pause(job: JobStatus) -> str:
    if job.state is JobState.SUBMITTING:
        return "is still being submitted; no worker can take rows of it yet"
    return f"is {job.state} already"


def _why_no_resume(job: JobStatus) -> str:
    how = f"; `producer retry {job.job_id}` runs failed rows again" if job.state is JobState.COMPLETED else ""
    return f"is not paused but {job.state}{how}"


async def _retry(job_id: str, *, as_json: bool, url: str | None) -> int:
    async with redis_at(url) as redis:
        before = await find_job(redis, job_id)
        retried = await control.retry(redis, job_id)
        job = await find_job(redis, job_id)
    if not retried:
        raise Refused(f"no row of job {job_id} can be retried: {_why_no_retry(before)}")
    if as_json:
        print_json(asdict(job) | {"retried": retried})
    else:
        how = f"; the job is paused, `producer resume {job_id}` lets it go on" if job.state is JobState.PAUSED else ""
        say(f"{retried} failed rows of job {job_id} run again{how}")
    return ExitCode.FINE


def _why_no_retry(job: JobStatus) -> str:
    if job.state is JobState.CANCELLED:
        return "it is cancelled (the same file submitted again is a new job)"
    if not job.failed:
        return "none has failed"
    consumed = " or were consumed" if job.consumed else ""
    return f"the {job.failed} that failed were refused at submission{consumed} (see the results)"
