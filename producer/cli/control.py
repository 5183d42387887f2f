"""`producer cancel`, `pause`, `resume`, `retry`: what is done to a job that is there."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict

from producer.cli.common import ExitCode, JobArgument, JsonOption, RedisOption, print_json, run, say
from producer.client import Client
from producer.job import Job
from producer.record.jobs import JobStatus
from producer.record.models import JobState


def cancel(job: JobArgument, json: JsonOption = False, redis: RedisOption = None) -> None:
    """End a job; what is done stays. All other rows are dropped, those in an engine within seconds."""
    run(_cancel(job, as_json=json, url=redis))


def pause(job: JobArgument, json: JsonOption = False, redis: RedisOption = None) -> None:
    """Let workers take no more rows of a job; those that they have run to their end."""
    run(_toggle(Job.pause, job, "paused", as_json=json, url=redis))


def resume(job: JobArgument, json: JsonOption = False, redis: RedisOption = None) -> None:
    """Let a paused job go on; one that stopped because of errors counts them anew."""
    run(_toggle(Job.resume, job, "goes on", as_json=json, url=redis))


def retry(job: JobArgument, json: JsonOption = False, redis: RedisOption = None) -> None:
    """Run the failed rows of a job again, but those that were refused at submission or were consumed."""
    run(_retry(job, as_json=json, url=redis))


async def _cancel(wanted: str, *, as_json: bool, url: str | None) -> int:
    async with Client(url, say=say) as client:
        job = await (await client.job(wanted)).cancel()
    if as_json:
        print_json(asdict(job))
    elif job.state is JobState.SUBMITTING:
        say(f"job {job.job_id} was still being submitted; nothing of it stays")
    else:
        say(f"job {job.job_id} is cancelled; {job.done} of {job.rows} rows are done and stay")
    return ExitCode.FINE


async def _toggle(
    action: Callable[[Job], Awaitable[JobStatus]], wanted: str, done: str, *, as_json: bool, url: str | None
) -> int:
    async with Client(url, say=say) as client:
        job = await action(await client.job(wanted))
    if as_json:
        print_json(asdict(job))
    else:
        say(f"job {job.job_id} {done}; {job.done} of {job.rows} rows are done")
    return ExitCode.FINE


async def _retry(wanted: str, *, as_json: bool, url: str | None) -> int:
    async with Client(url, say=say) as client:
        found = await client.job(wanted)
        retried = await found.retry()
        job = await found.status()
    if as_json:
        print_json(asdict(job) | {"retried": retried})
    else:
        paused = job.state is JobState.PAUSED
        how = f"; the job is paused, `producer resume {job.job_id}` lets it go on" if paused else ""
        say(f"{retried} failed rows of job {job.job_id} run again{how}")
    return ExitCode.FINE
