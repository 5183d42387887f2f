"""The options of `producer submit` that say what all rows of a job ask for."""

import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from producer.cli import common
from producer.intake import strict_json
from producer.intake.defaults import check_defaults, check_size, parse_object
from producer.intake.refused import Refused


def job_defaults(
    defaults: str | None = None,
    template: Path | None = None,
    arguments: str | None = None,
    *,
    settings: Sequence[str] = (),
    truncate: int | None = None,
    under: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What every row of a job asks for that does not say otherwise.

    Args:
        defaults: an object in JSON, or a file that it is in, as JSON or TOML.
        template: a file with a chat template.
        arguments: the template's, like `defaults`.
        settings: `NAME=VALUE` each; a value that is no JSON is a text. They win over `defaults`.
        truncate: how many tokens of a prompt are kept at most, its last ones.
        under: what holds where none of these says anything.

    Raises:
        common.Refused: they are none, say one thing twice, or are too large together.
        OSError: a file cannot be read.
    """
    asked = read_object("--defaults", defaults, check_defaults) if defaults is not None else {}
    asked |= _settings(settings)
    given = None if arguments is None else read_object("--chat-template-kwargs", arguments, lambda _: None)
    text = None if template is None else read_text("--chat-template", template)
    return joined("--defaults", asked, template=text, arguments=given, truncate=truncate, under=under)


def joined(
    source: str,
    asked: dict[str, Any],
    *,
    template: str | None,
    arguments: dict[str, Any] | None,
    truncate: int | None,
    under: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The same from values that are read already; `source` is what `asked` is called in messages.

    Raises:
        common.Refused: as `job_defaults`.
    """
    more: dict[str, Any] = {}
    if template is not None:
        more["chat_template"] = template
    if arguments is not None:
        more["chat_template_kwargs"] = arguments
    if truncate is not None:
        if truncate < 1:
            raise common.Refused(f"--truncate-prompts: {truncate} tokens are none; keep at least 1")
        more["truncate_prompt_tokens"] = truncate
    for name in more.keys() & asked.keys():
        raise common.Refused(f'{source} has "{name}" already: give one of them')
    if truncate is not None:
        # The end of a prompt is what is to be answered; a chat's template ends it with the turn of the model.
        more["truncation_side"] = asked.get("truncation_side", "left")
    together = (under or {}) | asked | more
    try:
        check_size(together)
    except Refused as refused:
        raise common.Refused(f"the defaults of all rows: {refused.fault.message}") from None
    return together


def read_object(option: str, text: str, check: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The object that an option spells, or that is in the file it names.

    Raises:
        common.Refused: there is none, or `check` refuses it.
        OSError: the file cannot be read.
    """
    if not text.lstrip().startswith("{"):
        file = Path(text)
        text = read_text(option, file)
        if file.suffix == ".toml":
            try:
                return from_toml(option, tomllib.loads(text), check)
            except tomllib.TOMLDecodeError as error:
                raise common.Refused(f"{option}: {file} is not TOML: {error}") from None
    return _checked(option, lambda: parse_object(text), check)


def from_toml(source: str, table: dict[str, Any], check: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """A table of TOML as an object of JSON.

    Raises:
        common.Refused: it has what JSON does not, or `check` refuses it.
    """
    try:
        text = json.dumps(table)
    except TypeError:
        raise common.Refused(f"{source}: it holds a date or a time, which JSON does not have") from None
    return _checked(source, lambda: parse_object(text), check)


def read_text(option: str, file: Path) -> str:
    """The text of a file that an option names.

    Raises:
        common.Refused: it is not UTF-8.
        OSError: it cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise common.Refused(f"{option}: {file} is not UTF-8") from None


def _settings(settings: Sequence[str]) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not name or not equals:
            raise common.Refused(f"--set: {setting!r} is not NAME=VALUE, as in temperature=0.7")
        asked[name] = _checked_value(name, text)
    return _checked("--set", lambda: asked, check_defaults)


def _checked_value(name: str, text: str) -> Any:
    """What VALUE spells: JSON, or else a text; but what seems to be JSON must be."""
    try:
        return strict_json.parse(text)
    except Refused as refused:
        if refused.fault.code == "invalid_json" and not text.lstrip().startswith(("{", "[", '"')):
            return text
        message = refused.fault.message.replace("the line", "the value", 1)
        raise common.Refused(f"--set {name}: {message}") from None


def _checked(
    source: str, read: Callable[[], dict[str, Any]], check: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    try:
        value = read()
        check(value)
    except Refused as refused:
        message = refused.fault.message.replace("the line", "it", 1)  # what is read strictly is a line elsewhere
        raise common.Refused(f"{source}: {message}") from None
    return value
