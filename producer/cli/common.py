"""What the commands share: finding Redis, one line for every error, exit codes."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Annotated, Any

import typer
from redis.asyncio import Redis
from rich.console import Console

from producer.cli import durations
from producer.record.connection import NoRedisUrl, RedisUnavailable, connect, plain_errors, reach
from producer.record.jobs import JobStatus, status
from producer.server.embedded import EmbeddedRedis
from producer.server.errors import ServerError


class ExitCode(IntEnum):
    """How a command ended."""

    FINE = 0
    SOME_ROWS_FAILED = 1
    USAGE = 2
    NO_REDIS = 3
    INTERRUPTED = 130


class Refused(Exception):  # noqa: N818 - what the user asked for is refused; the message is one line
    """The command cannot do what was asked; exit code `ExitCode.USAGE`."""


#: People read this; standard output is for programs.
people = Console(stderr=True, highlight=False, emoji=False)

RedisOption = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        envvar="MINEDRAFT_REDIS_URL",
        help="redis://, rediss://, unix:// or sentinel:// URL; without it, this user's embedded server.",
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, as `producer submit` printed it.")]


def run(command: Coroutine[Any, Any, int]) -> None:
    """Run a command to its exit code; whatever goes wrong is one line on standard error."""
    try:
        code = asyncio.run(command)
    except Refused as error:
        code = fail(str(error), ExitCode.USAGE)
    except NoRedisUrl as error:
        code = fail(str(error), ExitCode.USAGE)
    except RedisUnavailable as error:
        code = fail(str(error), ExitCode.NO_REDIS)
    except OSError as error:
        code = fail(f"{error.filename or 'cannot read or write'}: {error.strerror or error}", ExitCode.USAGE)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    raise typer.Exit(code)


def fail(message: str, code: ExitCode) -> ExitCode:
    """Say why a command fails; returns the code."""
    sys.stderr.write(f"producer: {printable(' '.join(message.split()))}\n")
    return code


def printable(text: str) -> str:
    """Text of a user's making (a file's name, say) that does no harm to a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text.encode(errors="replace").decode())


def say(text: str) -> None:
    """Tell people something, on one line however narrow their terminal, and harmless to it."""
    people.print(printable(text), markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON object on a line of standard output; what a terminal might obey in it is written as \\u escapes."""
    sys.stdout.write(escaped(json.dumps(value, ensure_ascii=False)) + "\n")


def escaped(line: str) -> str:
    """The same line of JSON, with what a terminal might obey in it as \\u escapes."""
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


@asynccontextmanager
async def redis_at(url: str | None) -> AsyncIterator[Redis]:
    """The Redis that the user means.

    Raises:
        RedisUnavailable: it does not answer.
    """
    if url is None:
        url = _embedded_url()
    async with connect(url) as redis, plain_errors(url):
        await reach(redis)
        yield redis


def _embedded_url() -> str:
    try:
        embedded = EmbeddedRedis()
        if embedded.status().running:
            return embedded.url
    except ServerError as error:
        raise RedisUnavailable(str(error)) from None
    raise RedisUnavailable(
        "Redis is not running: start your own with `producer redis start` (`worker run` does it too), "
        "or name one with --redis URL"
    )


async def find_job(redis: Redis, job_id: str) -> JobStatus:
    """The job's counters.

    Raises:
        Refused: there is no such job.
    """
    found = await status(redis, job_id)
    if found is None:
        raise Refused(f"there is no job {job_id!r}")
    return found


def duration_option(name: str, text: str | None) -> int | None:
    """An option's duration in seconds; None when it was not given.

    Raises:
        Refused: it is no duration.
    """
    try:
        return None if text is None else durations.seconds(text)
    except ValueError as error:
        raise Refused(f"{name}: {error}") from None
