"""One line of a submitted file -> one row, or the reason why it is none. Pure."""

import re
from dataclasses import dataclass
from typing import Any

from producer.intake import strict_json
from producer.intake.lines import Line, TooLong
from producer.intake.parameters import check_parameters
from producer.intake.refused import Refused, kind
from producer.intake.requests import PROMPT_MEMBERS, check_body, url_of
from producer.record.models import CHAT_URL, COMPLETIONS_URL, URLS, Row, RowFault

MAX_CUSTOM_ID_CHARS = 512

_BATCH_FIELDS = ("custom_id", "method", "url", "body")
_BATCH_MARKS = frozenset(_BATCH_FIELDS) - {"custom_id"}
# Control characters garble terminals and logs; lone surrogates cannot be stored.
_FORBIDDEN_IN_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ABSENT = object()
_UNUSED = {CHAT_URL: PROMPT_MEMBERS[COMPLETIONS_URL], COMPLETIONS_URL: PROMPT_MEMBERS[CHAT_URL]}


@dataclass(frozen=True, slots=True)
class Reject:
    """A line that is no row: it becomes an error line of the job.

    Attributes:
        index: position among the file's non-blank lines, from 0.
        line: line number in the file, from 1.
        custom_id: the line's name: the valid one it has, `implied_id` where it is an object without one, None
            where it has no valid one or cannot be read so far.
        fault: why.
        file: the file that it is from, in a job of several; else "".
    """

    index: int
    line: int
    custom_id: str | None
    fault: RowFault
    file: str = ""


def parse_line(line: Line | TooLong, index: int) -> Row | Reject:
    """The row that a line spells, or why it is refused. Raises nothing, whatever the bytes are.

    Two forms are accepted: a line of OpenAI's Batch API (`custom_id`, `method`, `url`, `body`; known by any of
    the last three), and a short line with `prompt` or `messages`, whose other fields are the request's
    parameters. In both, `custom_id` may be absent.
    """
    if isinstance(line, TooLong):
        message = f"the line has {line.size} bytes, more than the {line.limit} allowed"
        return Reject(index, line.number, None, RowFault("line_too_long", message), line.file)
    try:
        if line.fault is not None:
            raise Refused(line.fault.code, line.fault.message)
        fields = strict_json.load(line.data)
        if not isinstance(fields, dict):
            raise Refused("not_an_object", f"the line is {kind(fields)}, not an object")
        custom_id = _custom_id(fields.pop("custom_id", _ABSENT), line)
        url, body = _unwrap(fields) if not _BATCH_MARKS.isdisjoint(fields) else (url_of(fields), fields)
        check_body(url, body)
        body.pop(_UNUSED[url], None)  # it is null, and no parameter
        check_parameters(url, body)
    except Refused as refused:
        return Reject(index, line.number, _salvage_id(line), refused.fault, line.file)
    return Row(index=index, line=line.number, custom_id=custom_id, url=url, body=body, file=line.file)


def implied_id(line: Line) -> str:
    """The name of a row without one: `row-<line>`, in a job of several files `<file>:<line>`."""
    return f"{line.file}:{line.number}" if line.file else f"row-{line.number}"


def _unwrap(fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The URL and the body of a Batch line."""
    for name in fields:
        if name not in _BATCH_FIELDS:
            allowed = ", ".join(_BATCH_FIELDS)
            raise Refused("unknown_field", f"a Batch line has no field {strict_json.shown(name)} (it has {allowed})")
    if fields.get("method") != "POST":
        raise Refused("invalid_method", '"method" must be "POST"')
    url = fields.get("url")
    if url not in URLS:
        raise Refused("unknown_url", f'"url" must be {" or ".join(URLS)}')
    body = fields.get("body")
    if not isinstance(body, dict):
        what = kind(body) if "body" in fields else "missing"
        raise Refused("invalid_body", f'"body" is {what}; it must be an object')
    return str(url), body


def _custom_id(value: Any, line: Line) -> str:
    """A line's `custom_id`, checked, or the one implied by where the line is."""
    if value is _ABSENT:
        return implied_id(line)
    problem = None
    if not isinstance(value, str):
        hint = "; write it in quotes" if kind(value) == "a number" else ""
        problem = f"is {kind(value)}, not a string{hint}"
    elif not value:
        problem = "is empty"
    elif len(value) > MAX_CUSTOM_ID_CHARS:
        problem = f"has {len(value)} characters, more than the {MAX_CUSTOM_ID_CHARS} allowed"
    elif _FORBIDDEN_IN_ID.search(value):
        problem = "holds a control character"
    if problem:
        raise Refused("invalid_custom_id", f'"custom_id" {problem}')
    return str(value)


def _salvage_id(line: Line) -> str | None:
    """The `custom_id` of a refused line, so that its error can be told apart by name where possible."""
    values = strict_json.members(line.data, "custom_id")
    if values is None or len(values) > 1:
        return None
    try:
        return _custom_id(values[0] if values else _ABSENT, line)
    except Refused:
        return None
