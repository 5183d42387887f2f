"""The table `[submit]` of `minedraft.toml`: what `producer submit` asks for where no flag says otherwise.

The rest of the file is the worker's, which does not look at this table.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from producer.cli.common import Refused
from producer.cli.defaults import from_toml, joined, read_text
from producer.intake.defaults import check_defaults
from producer.intake.parameters import suggestion
from producer.intake.strict_json import shown

#: Read when no `--config` is given and it lies in the working directory.
DEFAULT_CONFIG = Path("minedraft.toml")

_TEXT, _TABLE, _WHOLE, _SWITCH = (str,), (dict,), (int,), (bool,)
#: Each setting, and the types that its value may have; they are called what the flags are.
_SETTINGS: dict[str, tuple[type, ...]] = {
    "model": _TEXT,
    "priority": _WHOLE,
    "max_error_rate": (float, int),
    "ttl": _TEXT,
    "on_duplicate": _TEXT,
    "dedupe": _SWITCH,
    "truncate_prompts": _WHOLE,
    "chat_template": _TEXT,
    "chat_template_kwargs": _TABLE,
    "defaults": _TABLE,
}
_WORDS: dict[tuple[type, ...], str] = {
    _TEXT: "a text",
    _TABLE: "a table",
    _WHOLE: "a whole number",
    _SWITCH: "true or false",
}
#: Those that say what rows ask for.
_OF_ROWS = ("truncate_prompts", "chat_template", "chat_template_kwargs", "defaults")


@dataclass(frozen=True, slots=True)
class SubmitTable:
    """What the table says.

    Attributes:
        options: how the job is treated, by the names of the flags.
        defaults: what its rows ask for.
    """

    options: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)


def submit_table(file: Path | None) -> SubmitTable:
    """The table in `file`, or in `./minedraft.toml` where that is there; an empty one where there is none.

    Raises:
        Refused: the file, or something in the table, is not what it should be.
        OSError: a file cannot be read.
    """
    if file is None:
        if not DEFAULT_CONFIG.is_file():
            return SubmitTable()
        file = DEFAULT_CONFIG
    elif not file.is_file():
        raise Refused(f"--config: there is no file {file}")
    try:
        found = tomllib.loads(read_text("--config", file)).get("submit", {})
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{file} is not TOML: {error}") from None
    if not isinstance(found, dict):
        raise Refused(f"{file}: submit must be a table, [submit]")
    for name, value in found.items():
        _check(file, name, value)
    options = {name: value for name, value in found.items() if name not in _OF_ROWS}
    return SubmitTable(options, _defaults(file, found))


def _check(file: Path, name: str, value: Any) -> None:
    types = _SETTINGS.get(name)
    if types is None:
        meant = name.replace("-", "_")
        hint = f"; in TOML it is {meant}" if meant in _SETTINGS and meant != name else suggestion(name, _SETTINGS)
        raise Refused(f"{file}: [submit] has no setting {shown(name)}{hint}")
    if type(value) not in types:
        raise Refused(f"{file}: {name} in [submit] must be {_WORDS.get(types, 'a number')}")


def _defaults(file: Path, found: dict[str, Any]) -> dict[str, Any]:
    source = f"{file}: [submit.defaults]"
    template, arguments = found.get("chat_template"), found.get("chat_template_kwargs")
    return joined(
        source,
        from_toml(source, found.get("defaults", {}), check_defaults),
        template=None if template is None else read_text(f"{file}: chat_template", file.parent / template),
        arguments=None if arguments is None else from_toml(f"{file}: chat_template_kwargs", arguments, lambda _: None),
        truncate=found.get("truncate_prompts"),
    )
