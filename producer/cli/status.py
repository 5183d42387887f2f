"""`producer status`: where jobs stand, as Redis has it."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.filesize import decimal

from producer.cli.common import ExitCode, JsonOption, RedisOption, find_job, print_json, redis_at, run
from producer.cli.completion import complete_job
from producer.cli.job_table import print_jobs
from producer.record import jobs
from producer.record.jobs import JobStatus
from producer.record.memory import memory


def status(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="A job's id or name; without it, all jobs.", autocompletion=complete_job),
    ] = None,
    json: JsonOption = False,
    redis: RedisOption = None,
) -> None:
    """Show how far a job is, or all of them."""
    run(_status(job, as_json=json, url=redis))


async def _status(wanted: str | None, *, as_json: bool, url: str | None) -> int:
    async with redis_at(url) as redis:
        if wanted is None:
            _show_all(await jobs.statuses(redis), as_json=as_json)
        else:
            job = await find_job(redis, wanted)
            _show_one(job, await memory(redis, job), as_json=as_json)
    return ExitCode.FINE


def _show_all(found: list[JobStatus], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(job) for job in found])
    else:
        print_jobs(found)


def _show_one(job: JobStatus, redis_bytes: int, *, as_json: bool) -> None:
    per_row = round(redis_bytes / max(job.rows, 1))
    if as_json:
        print_json(asdict(job) | {"redis_bytes": redis_bytes, "redis_bytes_per_row": per_row})
    else:
        print_jobs([job])
        sys.stdout.write(f"memory in Redis: about {decimal(redis_bytes)}, {per_row:,} bytes a row\n")
        if job.consumed:
            sys.stdout.write(f"consumed: {job.consumed:,} rows, which are not in Redis any more\n")
