"""`producer submit`: files become a job."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from producer.cli.common import (
    ExitCode,
    JsonOption,
    RedisOption,
    Refused,
    duration_option,
    print_json,
    printable,
    run,
    say,
)
from producer.cli.defaults import job_defaults
from producer.cli.dry_run import SHOWN, dry_run
from producer.cli.inputs import (
    ChatOption,
    FilesArgument,
    IdColumnOption,
    MessagesColumnOption,
    PromptColumnOption,
    TemplateOption,
    chosen_source,
)
from producer.cli.submit_table import DEFAULT_CONFIG, submit_table
from producer.cli.watch import follow as watch_job
from producer.client import Client
from producer.intake.interrupts import Interrupts
from producer.intake.reading import OnDuplicate
from producer.intake.sources import Source, SourceError
from producer.intake.submission import Submitted


@dataclass(frozen=True, slots=True)
class _Treatment:
    """How the job is treated; None: nothing says it."""

    model: str | None
    name: str | None
    new: bool | None
    priority: int | None
    max_error_rate: float | None
    ttl: str | None
    on_duplicate: str | None
    dedupe: bool | None
    append: str | None

    def under(self, options: dict[str, Any]) -> "_Treatment":
        """The same, where it says nothing as `options` do."""
        return replace(self, **{name: value for name, value in options.items() if getattr(self, name) is None})

    @property
    def options(self) -> bool:
        """True where it says something that a job keeps from when it was made."""
        return any(option is not None for option in (self.priority, self.max_error_rate, self.ttl))

    @property
    def duplicates(self) -> OnDuplicate:
        """What becomes of a `custom_id` that was there before."""
        return "error-row" if self.on_duplicate == "error-row" else "refuse"

    def check(self) -> None:
        """Refuse values that no job can have, by the names of the flags."""
        if self.model == "":
            raise Refused("--model: a name is needed")
        if self.priority is not None and not -100 <= self.priority <= 100:
            raise Refused(f"--priority: {self.priority} is not in -100 to 100")
        if self.max_error_rate is not None and not 0 <= self.max_error_rate <= 1:
            raise Refused(f"--max-error-rate: {self.max_error_rate} is not in 0 to 1")
        if duration_option("--ttl", self.ttl) == 0:
            raise Refused(f"--ttl: {self.ttl!r} would remove the job before anybody has its results")
        if self.on_duplicate not in (None, *get_args(OnDuplicate)):
            raise Refused(f"--on-duplicate: {self.on_duplicate!r} is neither {' nor '.join(get_args(OnDuplicate))}")


@dataclass(frozen=True, slots=True)
class _Way:
    """What is done with the input, and how it is told."""

    dry: bool
    everything: bool
    follow: bool
    as_json: bool
    url: str | None


def submit(
    files: FilesArgument,
    *,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The served model to ask (default: the only one served).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for people (default: the file's).")] = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Only check the input, and tell each line that would be an error row.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help=f"With --dry-run: tell all such lines, not only the first {SHOWN}.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Watch the job then, until it has ended.")] = False,
    prompt_column: PromptColumnOption = None,
    template: TemplateOption = None,
    messages_column: MessagesColumnOption = None,
    chat: ChatOption = False,
    id_column: IdColumnOption = None,
    defaults: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE",
            help="Parameters of every row that does not say otherwise: an object, or a .json or .toml file with it.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One such parameter, as in temperature=0.7."),
    ] = None,
    truncate_prompts: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="Cut longer prompts to their last TOKENS tokens; without it one that exceeds the context is an error.",
        ),
    ] = None,
    chat_template: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A Jinja chat template for every row without one of its own."),
    ] = None,
    chat_template_kwargs: Annotated[
        str | None,
        typer.Option(metavar="JSON|FILE", help="Arguments of the chat template, as one object."),
    ] = None,
    on_duplicate: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(get_args(OnDuplicate)),
            help="A custom_id that was there before: all is refused (default), or this row alone is an error.",
        ),
    ] = None,
    dedupe: Annotated[
        bool | None,
        typer.Option("--dedupe/--no-dedupe", help="Give rows with equal requests one answer."),
    ] = None,
    append: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Add rows to a job that has the first of these rows."),
    ] = None,
    new: Annotated[
        bool,
        typer.Option("--new", help="Start another job even if the same rows were submitted."),
    ] = False,
    priority: Annotated[
        int | None,
        typer.Option(metavar="N", help="-100 to 100: jobs of a higher one go first (default: 0)."),
    ] = None,
    max_error_rate: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Pause the job when a larger share of its rows fails: 0 to 1."),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Purge the job so long after its end, as in 7d or 12h."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="MINEDRAFT_CONFIG",
            help=f"TOML file whose table [submit] has what flags leave open (default: ./{DEFAULT_CONFIG}).",
        ),
    ] = None,
    json: JsonOption = False,
    redis: RedisOption = None,
) -> None:
    """Submit FILEs, or standard input, as a job.

    Each line is one row: {"prompt": ...}, {"messages": [...]} (with optional custom_id and sampling parameters), or
    an OpenAI Batch line. Lines that cannot be used become error rows. The same rows, with the same defaults, again
    find the job that is there.

    In minedraft.toml the table [submit] may have model, priority, max_error_rate, ttl, on_duplicate, dedupe,
    truncate_prompts, chat_template and chat_template_kwargs; [submit.defaults] has parameters of rows.
    """
    source = partial(
        chosen_source,
        files,
        prompt_column=prompt_column,
        template=template,
        messages_column=messages_column,
        chat=chat,
        id_column=id_column,
    )
    asked = partial(
        job_defaults,
        defaults,
        chat_template,
        chat_template_kwargs,
        settings=settings or (),
        truncate=truncate_prompts,
    )
    treatment = _Treatment(model, name, new or None, priority, max_error_rate, ttl, on_duplicate, dedupe, append)
    run(_submit(source, asked, treatment, config, _Way(dry, verbose, follow, json, redis)))


async def _submit(
    source: Callable[[], Source],
    asked: Callable[..., dict[str, Any]],
    treatment: _Treatment,
    config: Path | None,
    way: _Way,
) -> int:
    _check_append(treatment)
    table = submit_table(config)
    treatment = treatment.under(table.options)
    treatment.check()
    defaults = asked(under={} if treatment.append else table.defaults)  # that job has its own
    interrupts = Interrupts()
    try:
        if way.dry:
            return dry_run(
                interrupts.watched(source()),
                defaults=defaults,
                on_duplicate=treatment.duplicates,
                everything=way.everything,
                as_json=way.as_json,
            )
        return await _send(interrupts.watched(source()), defaults, treatment, way)
    except SourceError as error:
        raise Refused(str(error)) from None
    except asyncio.CancelledError:
        if interrupts.came:
            raise KeyboardInterrupt from None
        raise


async def _send(source: Source, defaults: dict[str, Any], treatment: _Treatment, way: _Way) -> int:
    async with Client(way.url, say=say) as client:
        model = None if treatment.append else await client.served_model(treatment.model)
        with _told_when_cut_short(source):
            job = await client.submit(
                source,
                model=model,
                name=treatment.name,
                new=bool(treatment.new),
                priority=treatment.priority or 0,
                max_error_rate=treatment.max_error_rate,
                ttl=duration_option("--ttl", treatment.ttl),
                defaults=defaults,
                on_duplicate=treatment.duplicates,
                dedupe=bool(treatment.dedupe),
                append=treatment.append,
            )
        assert job.submitted is not None
        if way.as_json:
            print_json(asdict(job.submitted))
        else:
            _tell(source.name, job.submitted, model, kept=treatment.options)
        if way.follow:
            sys.stdout.flush()
            return await watch_job(client.link.redis, job.id, as_json=way.as_json)
    return ExitCode.FINE


@contextmanager
def _told_when_cut_short(source: Source) -> Iterator[None]:
    try:
        yield
    except (asyncio.CancelledError, KeyboardInterrupt):
        say("interrupted: the same command goes on" if source.reopens else "interrupted: nothing was submitted")
        raise


def _tell(name: str, done: Submitted, model: str | None, *, kept: bool) -> None:
    """Say what became of a submission, and print its id.

    `model` is what a new job is for; `kept`: options were given, of which a job that was there has its own.
    """
    if done.resumed:
        options = ", with the options that it has" if kept else ""
        say(f"{name}: these rows are job {done.job_id} already ({done.state}){options}; --new would start another")
    else:
        refused = (
            f", {done.invalid} of them refused (`producer errors {done.job_id}` lists them)" if done.invalid else ""
        )
        copies = f", {done.copies} of them like an earlier one" if done.copies else ""
        if model is None:
            rows, job = f"{_rows(done.appended)} more", f"job {done.job_id} has {_rows(done.rows)} now"
        else:
            rows, job = f"{_rows(done.rows)} for model {model!r}", f"job {done.job_id}"
        say(f"{name}: {rows}{refused}{copies}; {job}")
    if done.differs_from:
        say(f"{name}: job {done.differs_from} has this name, too, but other rows, or asks for something else")
    if done.extends:
        more = f"the first {_rows(done.extended_rows)} of these; --append {done.extends} would have added the others"
        say(f"{name}: job {done.extends} has {more}")
    sys.stdout.write(printable(done.job_id) + "\n")


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _check_append(treatment: _Treatment) -> None:
    """Refuse flags that a job which is there does not heed."""
    if treatment.append is None:
        return
    for name in ("model", "name", "new", "priority", "max_error_rate", "ttl", "dedupe"):
        if getattr(treatment, name) is not None:
            raise Refused(f"--append: the job keeps what it has: leave --{name.replace('_', '-')} out")
