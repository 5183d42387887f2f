"""`producer errors`: the rows of a job that failed."""

import json as to_json
import sys
from collections import Counter, defaultdict
from typing import Annotated

import typer
from redis.asyncio import Redis

from producer.cli.common import ExitCode, JobArgument, RedisOption, Refused, escaped, find_job, printable, redis_at, run
from producer.record.failures import Failure, failures
from producer.record.jobs import JobStatus

#: Rows of each code that people see unless they ask for more.
_LIMIT = 5


def errors(
    job: JobArgument,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help=f"Rows of each code to show (default: {_LIMIT}; all with --json).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with every failed row.")] = False,
    redis: RedisOption = None,
) -> None:
    """Show which rows of a job failed, and why: by code, with their lines in the file that was submitted.

    Rows whose results were consumed are in the file that they went to. With --json: job_id, failed, by_code (how many
    of each), errors (line, custom_id, code, message; and file, where several were submitted), missing (consumed).
    """
    run(_errors(job, limit, as_json=json, url=redis))


async def _errors(wanted: str, limit: int | None, *, as_json: bool, url: str | None) -> int:
    if limit is not None and limit < 0:
        raise Refused(f"--limit: {limit} is less than 0")
    async with redis_at(url) as redis:
        job = await find_job(redis, wanted)
        if as_json:
            await _write_json(redis, job, limit)
        else:
            await _write_text(redis, job, _LIMIT if limit is None else limit)
    return ExitCode.FINE


async def _write_json(redis: Redis, job: JobStatus, limit: int | None) -> None:
    """One object, written as it is read: there may be a million rows."""
    head = to_json.dumps({"job_id": job.job_id, "failed": job.failed})
    sys.stdout.write(head.removesuffix("}") + ', "errors": [')
    codes: Counter[str] = Counter()
    separator = ""
    async for failure in failures(redis, job):
        codes[failure.code] += 1
        if limit is None or codes[failure.code] <= limit:
            sys.stdout.write(separator + escaped(to_json.dumps(failure.to_json(), ensure_ascii=False)))
            separator = ", "
    tail = to_json.dumps({"by_code": dict(codes.most_common()), "missing": job.failed - codes.total()})
    sys.stdout.write("], " + tail.removeprefix("{") + "\n")


async def _write_text(redis: Redis, job: JobStatus, limit: int) -> None:
    codes: Counter[str] = Counter()
    shown: defaultdict[str, list[Failure]] = defaultdict(list)
    async for failure in failures(redis, job):
        codes[failure.code] += 1
        if len(shown[failure.code]) < limit:
            shown[failure.code].append(failure)
    sys.stdout.write(f"{job.failed:,} of {job.rows:,} rows of job {job.job_id} failed\n")
    for code, count in codes.most_common():
        sys.stdout.write(f"{count:,} {printable(code)}\n")
        for failure in shown[code]:
            sys.stdout.write(f"  {_place(failure)}: {printable(' '.join(failure.message.split()))}\n")
        if count > limit > 0:
            sys.stdout.write(f"  and {count - limit:,} more (--limit {count} shows all)\n")
    if job.consumed and (missing := job.failed - codes.total()):
        sys.stdout.write(f"{missing:,} were consumed: they are in the file that they went to, not in Redis any more\n")


def _place(failure: Failure) -> str:
    where = "no line" if failure.line is None else f"line {failure.line}"
    named = f"{printable(failure.file)} {where}" if failure.file else where
    return named if failure.custom_id is None else f"{named} ({printable(failure.custom_id)})"
