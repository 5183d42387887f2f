"""Where the rows of `producer submit` come from: its FILEs, and the options that say how a table becomes rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from producer.cli.common import Refused
from producer.intake.sources import Source, SourceError, Table, open_source

FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="JSON lines, Parquet, Arrow, CSV or TSV, also in gzip or zstd; quoted patterns like 'data/*.jsonl'; "
        "- is standard input.",
    ),
]

PromptColumnOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column with the prompts (default: prompt, or else messages). Columns that no option names are not "
        "used: parameters come from --defaults.",
    ),
]

TemplateOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT|FILE",
        help="The prompt, with {column} for the value of a column and {{ for a brace; or a file with it.",
    ),
]

MessagesColumnOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column with chat messages: a list of structs with role and content, or a text of JSON.",
    ),
]

ChatOption = Annotated[bool, typer.Option("--chat", help="Ask each prompt as the message of a user, in a chat.")]

IdColumnOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The column with the custom_ids (default: custom_id, if any)."),
]


def chosen_source(
    files: Sequence[str],
    *,
    prompt_column: str | None,
    template: str | None,
    messages_column: str | None,
    chat: bool,
    id_column: str | None,
) -> Source:
    """The rows that the user means.

    Raises:
        Refused: there is something wrong with the options, or with one of the files.
        OSError: a file cannot be read.
    """
    try:
        text = None if template is None else _template(template)
        table = Table(prompt_column, text, messages_column, chat, id_column)
        return open_source(files, table=None if table == Table() else table)
    except SourceError as error:
        raise Refused(str(error)) from None


def _template(asked: str) -> str:
    """A template's text. One without a brace would say the same in every row: it is the name of a file."""
    if "{" in asked:
        return asked
    path = Path(asked)
    if not path.is_file():
        raise Refused(f"--template: {asked!r} has no {{column}} in it, and there is no such file")
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        raise Refused(f"--template: {asked!r} is not UTF-8") from None
