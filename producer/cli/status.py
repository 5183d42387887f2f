"""`producer status`: where jobs stand, as Redis has it."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from producer.cli.common import ExitCode, JsonOption, RedisOption, find_job, print_json, printable, redis_at, run
from producer.record import jobs
from producer.record.jobs import JobStatus
from producer.record.memory import memory

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
        if job_id is None:
            _show_all(await jobs.statuses(redis), as_json=as_json)
        else:
            job = await find_job(redis, job_id)
            _show_one(job, await memory(redis, job), as_json=as_json)
    return ExitCode.FINE


def _show_all(found: list[JobStatus], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(job) for job in found])
    else:
        _print(found)


def _show_one(job: JobStatus, redis_bytes: int, *, as_json: bool) -> None:
    per_row = round(redis_bytes / max(job.rows, 1))
    if as_json:
        print_json(asdict(job) | {"redis_bytes": redis_bytes, "redis_bytes_per_row": per_row})
    else:
        _print([job])
        sys.stdout.write(f"memory in Redis: about {decimal(redis_bytes)}, {per_row:,} bytes a row\n")
        if job.consumed:
            sys.stdout.write(f"consumed: {job.consumed:,} rows, which are not in Redis any more\n")


def _print(found: list[JobStatus]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("job", "name", "model", "state"):
        table.add_column(name)
    for name in ("priority", "rows", "done", "failed", "prompt tokens", "completion tokens"):
        table.add_column(name, justify="right")
    for job in found:
        texts = (printable(text) for text in (job.job_id, job.name, job.model, job.state))
        counters = (job.priority, job.rows, job.done, job.failed, job.prompt_tokens, job.completion_tokens)
        table.add_row(*texts, *(f"{counter:,}" for counter in counters))
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False).print(table)
    for job in found:
        if job.reason:
            sys.stdout.write(f"{printable(job.job_id)} has paused itself: {printable(job.reason)}\n")
