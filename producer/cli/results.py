"""`producer results`: the answers, as a file."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated

import typer

from producer.cli.common import ExitCode, JobArgument, RedisOption, Refused, escaped, find_job, redis_at, run, say
from producer.cli.consume import consume_into
from producer.record import jobs
from producer.record.jobs import JobStatus


class Order(StrEnum):
    """The order of lines in a results file."""

    INPUT = "input"
    COMPLETION = "completion"


def results(
    job: JobArgument,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE|-", help="Where to.")] = "-",
    order: Annotated[Order, typer.Option(help="As submitted, or as rows ended.")] = Order.COMPLETION,
    consume: Annotated[
        bool, typer.Option("--consume", help="Move them out of Redis into FILE, until the job has ended.")
    ] = False,
    redis: RedisOption = None,
) -> None:
    """Write a job's results: a line of JSON for each row that has ended, answered or failed.

    Works while the job runs. A file appears whole or not at all.

    With --consume FILE grows as rows end, and their results leave Redis. Whatever is interrupted, the same command
    goes on, and each row is in FILE once. A job that paused itself ends it with exit 1.
    """
    run(_consume(job, output, order, redis) if consume else _results(job, output, order, redis))


async def _consume(job_id: str, output: str, order: Order, url: str | None) -> int:
    if output == "-":
        raise Refused("--consume needs -o FILE: results leave Redis only for a disk")
    if order is Order.INPUT:
        raise Refused("--consume writes rows as they end; --order input is for results that stay in Redis")
    async with redis_at(url) as redis:
        return await consume_into(redis, job_id, Path(output))


async def _results(job_id: str, output: str, order: Order, url: str | None) -> int:
    async with redis_at(url) as redis:
        job = await find_job(redis, job_id)
        _spare_consumed(job, Path(output))
        written = 0
        try:
            with _destination(output) as stream:
                shown = escaped if stream.isatty() else str  # a file or a pipe gets lines as they are
                async for line in jobs.results(redis, job_id, order=order.value):
                    stream.write(shown(line) + "\n")
                    written += 1
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.FINE
        except OSError as error:
            raise Refused(f"{output}: {error.strerror}") from None
    consumed = f", {job.consumed} were consumed earlier" if job.consumed else ""
    missing = "" if job.state.ended else f" (the job is {job.state}, more will come)"
    say(f"{written} of {job.rows} rows written to {output}{consumed}{missing}")
    return ExitCode.FINE


def _spare_consumed(job: JobStatus, path: Path) -> None:
    """Replace no file that may be the only place where results of the job are."""
    if job.consumed and path.is_file() and path.stat().st_size:
        raise Refused(
            f"{path} is not replaced: {job.consumed} rows of job {job.job_id} were consumed and are in such a file "
            f"only (`--consume` goes on with it)"
        )


@contextmanager
def _destination(output: str) -> Iterator[IO[str]]:
    """Standard output, or a file that is put in place when it is complete and on the disk."""
    path = Path(output)
    if output == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    path = path.resolve()  # the file that a link means, not the link
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as stream:
        scratch = Path(stream.name)
        try:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            scratch.chmod(0o666 & ~_umask())
            scratch.replace(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
