"""`producer purge`: ended jobs leave Redis."""

from typing import Annotated

import typer
from redis.asyncio import Redis
from rich.filesize import decimal

from producer.cli.common import (
    ExitCode,
    JsonOption,
    RedisOption,
    Refused,
    duration_option,
    find_job,
    print_json,
    redis_at,
    run,
    say,
)
from producer.cli.completion import complete_job
from producer.job import not_ended
from producer.record import control, jobs
from producer.record.jobs import JobStatus
from producer.record.memory import memory


def purge(
    job: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB...", help="Ids or names of jobs that have ended.", autocompletion=complete_job),
    ] = None,
    ended: Annotated[bool, typer.Option("--ended", help="All jobs that have ended.")] = False,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="With --ended: only those that ended so long ago, as in 7d or 12h."),
    ] = None,
    json: JsonOption = False,
    redis: RedisOption = None,
) -> None:
    """Remove jobs that have ended, results and all. Nothing brings them back."""
    run(_purge(job or [], ended=ended, older_than=older_than, as_json=json, url=redis))


async def _purge(wanted: list[str], *, ended: bool, older_than: str | None, as_json: bool, url: str | None) -> int:
    if bool(wanted) == ended:
        raise Refused("name the jobs to purge, or say --ended for all that have ended")
    if older_than is not None and not ended:
        raise Refused("--older-than goes with --ended")
    age = duration_option("--older-than", older_than) or 0
    purged: list[str] = []
    freed = 0
    async with redis_at(url) as redis:
        for job in await _all_ended(redis, age) if ended else await _named(redis, wanted):
            size = await memory(redis, job)
            if await control.purge(redis, job.job_id):  # else somebody else did it, or retried it, just now
                purged.append(job.job_id)
                freed += size
        while await control.sweep(redis):
            pass
    if as_json:
        print_json({"purged": purged, "freed_bytes": freed})
    else:
        jobs_purged = "1 job" if len(purged) == 1 else f"{len(purged)} jobs"
        say(f"{jobs_purged} purged, about {decimal(freed)} of Redis's memory freed")
    return ExitCode.FINE


async def _named(redis: Redis, wanted: list[str]) -> list[JobStatus]:
    """These jobs.

    Raises:
        Refused: one of them is not there or has not ended; then none is purged.
    """
    found = {(job := await find_job(redis, each)).job_id: job for each in wanted}
    for job in found.values():
        if not job.state.ended:
            raise not_ended(job)
    return list(found.values())


async def _all_ended(redis: Redis, age: int) -> list[JobStatus]:
    seconds, micros = await redis.time()
    latest = seconds + micros / 1e6 - age
    return [job for job in await jobs.statuses(redis) if job.ended is not None and job.ended <= latest]
