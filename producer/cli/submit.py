"""`producer submit`: a file becomes a job."""

import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from redis.asyncio import Redis

from producer.cli.common import (
    ExitCode,
    JsonOption,
    RedisOption,
    Refused,
    duration_option,
    print_json,
    printable,
    redis_at,
    run,
    say,
)
from producer.cli.defaults import job_defaults
from producer.intake.submission import DuplicateIds, NothingReadable, Submitted, submit_lines
from producer.record import fleet
from producer.record.jobs import JobOptions, SubmissionLost
from producer.record.models import TARGET


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="JSON lines: OpenAI Batch lines or short ones.")],
    *,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The served model to ask (default: the only one served).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for people (default: the file's).")] = None,
    new: Annotated[bool, typer.Option("--new", help="Start another job even if the same rows were submitted.")] = False,
    priority: Annotated[int, typer.Option(metavar="N", help="-100 to 100: jobs of a higher one go first.")] = 0,
    max_error_rate: Annotated[
        float | None, typer.Option(metavar="RATE", help="Pause the job when a larger share of its rows fails: 0 to 1.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="Purge the job so long after its end, as in 7d or 12h.")
    ] = None,
    defaults: Annotated[
        str | None,
        typer.Option(metavar="JSON|FILE", help="Parameters of every row that does not say otherwise, as one object."),
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A Jinja chat template for every row without one of its own.")
    ] = None,
    chat_template_kwargs: Annotated[
        str | None, typer.Option(metavar="JSON|FILE", help="Arguments of the chat template, as one object.")
    ] = None,
    json: JsonOption = False,
    redis: RedisOption = None,
) -> None:
    """Submit FILE (or standard input) as a job.

    Each line is one row: {"prompt": ...}, {"messages": [...]} (with optional custom_id and sampling parameters), or
    an OpenAI Batch line. Lines that cannot be used become error rows. The same rows, with the same defaults, again
    find the job that is there.
    """
    run(
        _submit(
            file,
            model=model,
            name=name,
            new=new,
            asked=(priority, max_error_rate, ttl),
            of_rows=(defaults, chat_template, chat_template_kwargs),
            as_json=json,
            url=redis,
        )
    )


async def _submit(
    file: str,
    *,
    model: str | None,
    name: str | None,
    new: bool,
    asked: tuple[int, float | None, str | None],
    of_rows: tuple[str | None, Path | None, str | None],
    as_json: bool,
    url: str | None,
) -> int:
    options, defaults = _options(*asked), job_defaults(*of_rows)
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
                    options=options,
                    defaults=defaults,
                    say=say,
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
        _tell(file, done, chosen, options)
    return ExitCode.FINE


def _options(priority: int, max_error_rate: float | None, ttl: str | None) -> JobOptions:
    if not -100 <= priority <= 100:
        raise Refused(f"--priority: {priority} is not in -100 to 100")
    if max_error_rate is not None and not 0 <= max_error_rate <= 1:
        raise Refused(f"--max-error-rate: {max_error_rate} is not in 0 to 1")
    ttl_s = duration_option("--ttl", ttl)
    if ttl_s == 0:
        raise Refused(f"--ttl: {ttl!r} would remove the job before anybody has its results")
    return JobOptions(priority, max_error_rate, ttl_s)


def _tell(file: str, done: Submitted, model: str, options: JobOptions) -> None:
    if done.resumed:
        kept = "" if options == JobOptions() else ", with the options that it has"
        say(f"{file}: these rows are job {done.job_id} already ({done.state}){kept}; --new would start another")
    else:
        refused = f", {done.invalid} of them refused (see the results)" if done.invalid else ""
        say(f"{file}: {done.rows} rows for model {model!r}{refused}; job {done.job_id}")
    sys.stdout.write(printable(done.job_id) + "\n")


async def _choose_model(redis: Redis, asked: str | None) -> str:
    served = sorted({card.model for card in await fleet.living(redis)})
    if asked is None and len(served) > 1:
        raise Refused(f"several models are served, choose one with --model: {', '.join(served)}")
    if asked is None:
        return served[0] if served else TARGET
    if not asked:
        raise Refused("--model: a name is needed")
    return asked


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb")
