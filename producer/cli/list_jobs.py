"""`producer list`: all jobs."""

from dataclasses import asdict
from typing import Annotated

import typer

from producer.cli.common import ExitCode, JsonOption, RedisOption, print_json, redis_at, run
from producer.cli.job_table import print_jobs
from producer.record import jobs
from producer.record.models import JobState


def list_jobs(
    state: Annotated[list[JobState] | None, typer.Option(help="Only jobs in this state; may be repeated.")] = None,
    json: JsonOption = False,
    redis: RedisOption = None,
) -> None:
    """List all jobs, the newest last.

    With --json, an array of what `producer status JOB --json` prints of each, without memory.
    """
    run(_list(state or list(JobState), as_json=json, url=redis))


async def _list(states: list[JobState], *, as_json: bool, url: str | None) -> int:
    async with redis_at(url) as redis:
        found = [job for job in await jobs.statuses(redis) if job.state in states]
    if as_json:
        print_json([asdict(job) for job in found])
    else:
        print_jobs(found)
    return ExitCode.FINE
