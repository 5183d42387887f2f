"""The placement that `worker plan --save FILE` found, and that `worker run --plan FILE` starts with: a small TOML file.

mode = "auto"                # ar: no device drafts; sd: the target's devices draft, too; auto: one more drafts
tensor_parallel_size = 4     # devices of the target
num_speculative_tokens = 5   # at most; not with ar
why = "psd(2m) k=3: ..."     # for people
"""

import json
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, cast, get_args

PlannedMode = Literal["ar", "sd", "auto"]


class PlanFileError(Exception):
    """The file is no plan; one line for the user."""


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    """Which devices verify, and which draft.

    Attributes:
        mode: `ar` (none drafts), `sd` (those of the target) or `auto` (one of its own).
        tensor_parallel_size: devices of the target.
        num_speculative_tokens: the most tokens drafted at once; 0 with `ar`.
        why: the plan's reason, in words.
    """

    mode: PlannedMode
    tensor_parallel_size: int
    num_speculative_tokens: int = 0
    why: str = ""


def write(path: Path, placement: PlannedPlacement) -> None:
    """Leave a placement.

    Raises:
        OSError: the file cannot be written.
    """
    # What JSON writes for numbers and text is TOML, too, but for DEL, which TOML wants escaped.
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in asdict(placement).items())
    path.write_text("".join(lines).replace("\x7f", "\\u007f"), encoding="utf-8")


def read(path: Path) -> PlannedPlacement:
    """What `write` left, or a user wrote.

    Raises:
        OSError: the file cannot be read.
        PlanFileError: it is no plan.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanFileError(f"{path} is not TOML: {error}") from error
    names = {field.name for field in fields(PlannedPlacement)}
    if unknown := sorted(found.keys() - names):
        raise PlanFileError(f"{path}: {unknown[0]!r} is not one of {', '.join(sorted(names))}")
    mode, why = found.get("mode"), found.get("why", "")
    if mode is None or mode not in get_args(PlannedMode):
        raise PlanFileError(f"{path}: mode is {mode!r}, not one of {', '.join(get_args(PlannedMode))}")
    if not isinstance(why, str):
        raise PlanFileError(f"{path}: why is {why!r}, not a text")
    drafts = _whole(path, found, "num_speculative_tokens", 0)
    if (mode == "ar") is not (drafts == 0):
        raise PlanFileError(f"{path}: mode {mode} with num_speculative_tokens {drafts}")
    return PlannedPlacement(cast(PlannedMode, mode), _whole(path, found, "tensor_parallel_size", 1), drafts, why)


def _whole(path: Path, found: dict[str, object], name: str, least: int) -> int:
    value = found.get(name, least)
    if type(value) is not int or value < least:  # a bool is an int, too
        raise PlanFileError(f"{path}: {name} is {value!r}, not a whole number from {least} on")
    return value
