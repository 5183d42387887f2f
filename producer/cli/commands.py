"""The commands of `producer`: where each is, and what its help ends with.

Nothing of a command is imported before it is asked for: `producer --help` needs this table alone, and completion only
the command that is being typed.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context


@dataclass(frozen=True, slots=True)
class Entry:
    """One command.

    Attributes:
        module: the module of `producer.cli` that it is in, in which it has its own name.
        summary: what it does, short enough for a line of the list.
        examples: what its help ends with, a line each.
        function: what it is called there, where that is not its own name.
    """

    module: str
    summary: str
    examples: tuple[str, ...]
    function: str = ""

    def load(self, name: str) -> "Command":
        """The command itself."""
        found = getattr(import_module(f"producer.cli.{self.module}"), self.function or name)
        if isinstance(found, typer.Typer):
            group = typer.main.get_command(found)
            group.name = name
            return group
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name, epilog=_as_lines("Examples:" if self.examples[1:] else "Example:", *self.examples))(found)
        return typer.main.get_command(alone)


def _as_lines(title: str, *lines: str) -> str:
    """A paragraph whose lines are left as they are."""
    return "\n".join(("\b", title, *(f"  {line}" for line in lines)))


COMMANDS = {
    "submit": Entry(
        "submit",
        "Submit files, or standard input, as a job.",
        (
            "producer submit rows.jsonl --dry-run",
            "producer submit rows.jsonl --set temperature=0 --set max_tokens=200 --follow",
            "producer submit 'data/*.jsonl.gz' --defaults defaults.toml --max-error-rate 0.1 --ttl 7d",
            "zcat rows.jsonl.gz | producer submit - --name rows",
        ),
    ),
    "list": Entry(
        "list_jobs",
        "List all jobs, the newest last.",
        ("producer list", "producer list --state running --json"),
        function="list_jobs",
    ),
    "status": Entry("status", "Show how far a job is.", ("producer status rows.jsonl",)),
    "watch": Entry(
        "watch",
        "Watch a job until it has ended.",
        ("producer watch rows.jsonl", "producer watch m3nqynug --json | jq .seconds_left"),
    ),
    "results": Entry(
        "results",
        "Write a job's results to a file.",
        ("producer results rows.jsonl -o answers.jsonl --order input",),
    ),
    "errors": Entry(
        "errors",
        "Show which rows of a job failed, and why.",
        ("producer errors rows.jsonl", "producer errors rows.jsonl --json | jq '.errors[].line'"),
    ),
    "cancel": Entry(
        "control",
        "End a job; what is done stays.",
        ("producer cancel m3nqynug",),
    ),
    "pause": Entry(
        "control",
        "Let workers take no more rows of a job.",
        ("producer pause m3nqynug",),
    ),
    "resume": Entry(
        "control",
        "Let a paused job go on.",
        ("producer resume m3nqynug",),
    ),
    "retry": Entry(
        "control",
        "Run the failed rows of a job again.",
        ("producer retry m3nqynug",),
    ),
    "purge": Entry(
        "purge",
        "Remove jobs that have ended, results and all.",
        ("producer purge m3nqynug", "producer purge --ended --older-than 7d"),
    ),
    "redis": Entry(
        "redis",
        "Start, stop and show this user's own Redis server.",
        ("producer redis start",),
        function="app",
    ),
}

#: What the help of `producer` itself ends with.
EPILOG = """JOB is a job's id, or its name (the file's) where that means one job. `producer COMMAND --help` tells more.

\b
Exit codes: 0 fine; 1 some rows failed; 2 usage, or input that is refused;
3 Redis cannot be reached; 130 interrupted."""


class Commands(TyperGroup):
    """The group of all commands, each a name and a sentence until it is run, helped or completed."""

    def __init__(self, **options: Any) -> None:
        commands = {name: TyperCommand(name, help=entry.summary) for name, entry in COMMANDS.items()}
        super().__init__(**(options | {"commands": commands}))

    def resolve_command(self, ctx: "Context", args: list[str]) -> "tuple[str | None, Command | None, list[str]]":
        """The command that is meant, now loaded."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = COMMANDS[args[0]].load(args[0])
        return super().resolve_command(ctx, args)
