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

from producer.cli.common import ExitCode, JobArgument, RedisOption, Refused, find_job, redis_at, run, say
from producer.record import jobs


class Order(StrEnum):
    """The order of lines in a results file."""

    INPUT = "input"
    COMPLETION = "completion"


def results(
    job: JobArgument,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE|-", help="Where to.")] = "-",
    order: Annotated[Order, typer.Option(help="As submitted, or as rows ended.")] = Order.COMPLETION,
    redis: RedisOption = None,
) -> None:
    """Write a job's results: a line of JSON for each row that has ended, answered or failed.

    Works while the job runs. A file appears whole or not at all.
    """
    run(_results(job, output, order, redis))


async def _results(job_id: str, output: str, order: Order, url: str | None) -> int:
    async with redis_at(url) as redis:
        job = await find_job(redis, job_id)
        written = 0
        try:
            with _destination(output) as stream:
                async for line in jobs.results(redis, job_id, order=order.value):
                    stream.write(line + "\n")
                    written += 1
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.FINE
        except OSError as error:
            raise Refused(f"{output}: {error.strerror}") from None
    missing = "" if job.state.ended else f" (the job is {job.state}, more will come)"
    say(f"{written} of {job.rows} rows written to {output}{missing}")
    return ExitCode.FINE


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
