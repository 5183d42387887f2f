"""The options of `producer submit` that say what all rows of a job ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from producer.cli import common
from producer.intake.defaults import check_defaults, check_size, parse_object
from producer.intake.refused import Refused


def job_defaults(defaults: str | None, template: Path | None, arguments: str | None) -> dict[str, Any]:
    """What every row of a job asks for that does not say otherwise.

    Args:
        defaults: an object in JSON, or the file that it is in.
        template: a file with a chat template.
        arguments: the template's, like `defaults`.

    Raises:
        common.Refused: they are none, say one thing twice, or are too large together.
        OSError: a file cannot be read.
    """
    asked = _object("--defaults", defaults, check_defaults) if defaults is not None else {}
    more: dict[str, Any] = {}
    if template is not None:
        more["chat_template"] = _text("--chat-template", template)
    if arguments is not None:
        more["chat_template_kwargs"] = _object("--chat-template-kwargs", arguments, lambda _: None)
    for name in more.keys() & asked.keys():
        raise common.Refused(f'--defaults has "{name}" already: give one of them')
    together = asked | more
    try:
        check_size(together)
    except Refused as refused:
        raise common.Refused(f"the defaults of all rows: {refused.fault.message}") from None
    return together


def _object(option: str, text: str, check: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        text = _text(option, Path(text))
    try:
        value = parse_object(text)
        check(value)
    except Refused as refused:
        message = refused.fault.message.replace("the line", "it", 1)  # what is read strictly is a line elsewhere
        raise common.Refused(f"{option}: {message}") from None
    return value


def _text(option: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise common.Refused(f"{option}: {file} is not UTF-8") from None
