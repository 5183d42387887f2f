"""What the commands share: finding Redis, one line for every error, exit codes."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from enum import IntEnum
from typing import Annotated, Any

import typer
from rich.console import Console

from producer.cli import durations
from producer.errors import NoRedisUrl, RedisUnavailable, Refused
from producer.locate import redis_at
from producer.record.finding import find_job
from producer.text import printable

__all__ = ["Refused", "find_job", "printable", "redis_at"]  # and all that is defined here


class ExitCode(IntEnum):
    """How a command ended."""

    FINE = 0
    SOME_ROWS_FAILED = 1
    USAGE = 2
    NO_REDIS = 3
    INTERRUPTED = 130


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


def _complete_job(incomplete: str) -> list[tuple[str, str]]:
    from producer.cli.completion import complete_job  # noqa: PLC0415 - it needs this module

    return complete_job(incomplete)


JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job's id, as `producer submit` printed it, or its name where that means one job.",
        autocompletion=_complete_job,
    ),
]


def run(command: Coroutine[Any, Any, int]) -> None:
    """Run a command to its exit code; whatever goes wrong is one line on standard error."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # until here it ended the program at once
    try:
        code = asyncio.run(command)
    except Refused as error:
        code = fail(str(error), ExitCode.USAGE)
    except NoRedisUrl as error:
        code = fail(str(error), ExitCode.USAGE)
    except RedisUnavailable as error:
        code = fail(str(error), ExitCode.NO_REDIS)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.FINE
    except OSError as error:
        code = fail(f"{error.filename or 'cannot read or write'}: {error.strerror or error}", ExitCode.USAGE)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    raise typer.Exit(code)


def fail(message: str, code: ExitCode) -> ExitCode:
    """Say why a command fails; returns the code."""
    sys.stderr.write(f"producer: {printable(' '.join(message.split()))}\n")
    return code


def say(text: str) -> None:
    """Tell people something, on one line however narrow their terminal, and harmless to it."""
    people.print(printable(text), markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON object on a line of standard output; what a terminal might obey in it is written as \\u escapes."""
    sys.stdout.write(escaped(json.dumps(value, ensure_ascii=False)) + "\n")


def escaped(line: str) -> str:
    """The same line of JSON, with what a terminal might obey in it as \\u escapes."""
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def duration_option(name: str, text: str | None) -> int | None:
    """An option's duration in seconds; None when it was not given.

    Raises:
        Refused: it is no duration.
    """
    try:
        return None if text is None else durations.seconds(text)
    except ValueError as error:
        raise Refused(f"{name}: {error}") from None
