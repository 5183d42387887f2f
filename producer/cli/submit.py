"""`producer submit`: a file becomes a job."""

import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from redis.asyncio import Redis

from producer.cli.common import ExitCode, JsonOption, RedisOption, Refused, print_json, printable, redis_at, run, say
from producer.intake.submission import DuplicateIds, NothingReadable, Submitted, submit_lines
from producer.record import fleet
from producer.record.jobs import SubmissionLost
from producer.record.models import TARGET


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="JSON lines: OpenAI Batch lines or short ones.")],
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The served model to ask (default: the only one served).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for people (default: the file's).")] = None,
    new: Annotated[bool, typer.Option("--new", help="Start another job even if the same rows were submitted.")] = False,
    json: JsonOption = False,
    redis: RedisOption = None,
) -> None:
    """Submit FILE (or standard input) as a job.

    Each line is one row: {"prompt": ...}, {"messages": [...]} (with optional custom_id and sampling parameters), or
    an OpenAI Batch line. Lines that cannot be used become error rows. The same rows again find the job that is there.
    """
    run(_submit(file, model=model, name=name, new=new, as_json=json, url=redis))


async def _submit(file: str, *, model: str | None, name: str | None, new: bool, as_json: bool, url: str | None) -> int:
    # asyncio's own handler would wait for a read from standard input that may never end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with _opened(file) as stream:
        async with redis_at(url) as redis:
            chosen = await _choose_model(redis, model)
            try:
                done = await submit_lines(
                    redis,
                    stream,
                    model=chosen,
                    name=printable(name or ("stdin" if file == "-" else Path(file).name)),
                    new=new,
                )
            except (DuplicateIds, NothingReadable, SubmissionLost) as error:
                raise Refused(f"{file}: {error}") from None
    if as_json:
        print_json(
            {
                "job_id": done.job_id,
                "state": done.state,
                "rows": done.rows,
                "invalid": done.invalid,
                "resumed": done.resumed,
            }
        )
    else:
        _tell(file, done, chosen)
    return ExitCode.FINE


def _tell(file: str, done: Submitted, model: str) -> None:
    if done.resumed:
        say(f"{printable(file)}: these rows are job {done.job_id} already ({done.state}); --new would start another")
    else:
        refused = f", {done.invalid} of them refused (see the results)" if done.invalid else ""
        say(f"{printable(file)}: {done.rows} rows for model {model!r}{refused}; job {done.job_id}")
    sys.stdout.write(done.job_id + "\n")


async def _choose_model(redis: Redis, asked: str | None) -> str:
    served = sorted({card.model for card in await fleet.living(redis)})
    if asked is None and len(served) > 1:
        raise Refused(f"several models are served, choose one with --model: {', '.join(served)}")
    if asked is None:
        return served[0] if served else TARGET
    return asked


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb")
