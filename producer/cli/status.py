"""`producer status`: where jobs stand, as Redis has it."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from producer.cli.common import ExitCode, JsonOption, RedisOption, find_job, print_json, redis_at, run
from producer.record import jobs
from producer.record.jobs import JobStatus

#: Columns where no terminal says how many there are: nothing is cut off for `grep`.
_PIPE_WIDTH = 200


def status(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="A job's id; without it, all jobs.")] = None,
    json: JsonOption = False,
    redis: RedisOption = None,
) -> None:
    """Show how far a job is, or all of them."""
    run(_status(job, as_json=json, url=redis))


async def _status(job_id: str | None, *, as_json: bool, url: str | None) -> int:
    async with redis_at(url) as redis:
        found = await jobs.statuses(redis) if job_id is None else [await find_job(redis, job_id)]
    if as_json:
        shown = [asdict(job) for job in found]
        print_json(shown if job_id is None else shown[0])
    else:
        _print(found)
    return ExitCode.FINE


def _print(found: list[JobStatus]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("job", "name", "model", "state"):
        table.add_column(name)
    for name in ("rows", "done", "failed", "prompt tokens", "completion tokens"):
        table.add_column(name, justify="right")
    for job in found:
        counters = (job.rows, job.done, job.failed, job.prompt_tokens, job.completion_tokens)
        table.add_row(job.job_id, job.name, job.model, job.state, *(f"{counter:,}" for counter in counters))
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False).print(table)
