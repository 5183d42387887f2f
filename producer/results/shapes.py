"""What a line of results holds: answered or failed, and the flat record that it makes. Pure."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from producer.record.models import dumps

#: The code of a line that is no result: somebody else wrote it to Redis.
UNREADABLE = "unreadable_result"

#: Every flat record has all of these, in this order; None is for what there is none of.
COLUMNS = (
    "custom_id",
    "file",
    "line",
    "text",
    "texts",
    "reasoning",
    "tool_calls",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "error_code",
    "error",
)

# Cheap to look for in a whole page. In a JSON string its quotes would be escaped; what else has it is parsed.
_NO_RESPONSE = re.compile(rb'"response"\s*:\s*null')

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Parted:
    """Lines of results, told apart; each with its newline, in the order that they came in."""

    answered: bytes
    failed: bytes
    codes: Counter[str]


@dataclass(slots=True)
class Tally:
    """What was written so far: lines, and those of them that failed, by error code."""

    lines: int = 0
    codes: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """How many rows failed."""
        return self.codes.total()

    def add(self, lines: bytes) -> Parted:
        """Count these lines of results; returns them told apart."""
        parted = part(lines)
        self.lines += lines.count(b"\n")
        self.codes += parted.codes
        return parted


def part(lines: bytes) -> Parted:
    """Tell failed rows from answered ones; `lines` are whole lines of OpenAI's batch output shape.

    A line that is no JSON is passed on as if it were answered: nobody can say what it is.
    """
    answered, failed, codes = [], [], Counter[str]()
    at = looked_at = 0
    for found in _NO_RESPONSE.finditer(lines):
        if found.start() < looked_at:
            continue
        start = lines.rfind(b"\n", 0, found.start()) + 1
        looked_at = lines.index(b"\n", found.start()) + 1
        if (code := _error_code(lines[start:looked_at])) is not None:
            answered.append(lines[at:start])
            failed.append(lines[start:looked_at])
            codes[code] += 1
            at = looked_at
    answered.append(lines[at:])
    return Parted(b"".join(answered), b"".join(failed), codes)


def flat(line: bytes) -> dict[str, Any]:
    """The flat record of one line of results: every name of `COLUMNS`.

    `text` is the content of the first choice, `texts` that of all when there are several; `file` and `line` say where
    a failed row was submitted (a line of results does not say it of an answered one).
    """
    return taken_apart(line)[0]


def taken_apart(line: bytes) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The flat record of one line of results, and the whole `response` (None for a failed row)."""
    return _record(_object(line))


def table_row(line: bytes) -> dict[str, Any]:
    """The same for a table: `tool_calls` as JSON text, and beside the flat columns `response`, the whole of it, as JSON
    text (None for a failed row)."""
    record, response = taken_apart(line)
    calls = record["tool_calls"]
    record["tool_calls"] = None if calls is None else compact(calls).decode()
    record["response"] = None if response is None else compact(response).decode()
    return record


def split_lines(lines: bytes) -> Iterator[bytes]:
    """The lines one by one, without their newlines, which are the only thing that parts them."""
    return iter(lines.split(b"\n")[:-1])


def compact(value: Any) -> bytes:
    """Compact JSON in UTF-8; what is no text in it becomes question marks."""
    try:
        return orjson.dumps(value)
    except TypeError:  # numbers of more than 64 bits, deep nesting, lone surrogates: somebody else's doing
        return dumps(value).encode(errors="replace")


def _object(line: bytes) -> dict[str, Any] | None:
    """The object that a line spells, exactly; None if it spells none."""
    with suppress(ValueError, TypeError):
        found = orjson.loads(line)
        if orjson.dumps(found) == line:  # so nothing was lost by it: a large number, for instance
            return found if isinstance(found, dict) else None
    try:
        found = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _error_code(line: bytes) -> str | None:
    result = _object(line)
    if result is None or result.get("response", ...) is not None:
        return None
    return _code(_member(result, "error"))


def _code(error: dict[str, Any]) -> str:
    return _text(error.get("code")) or "unknown"


def _record(result: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The flat record of a result, and its `response`, where it has one."""
    record: dict[str, Any] = dict.fromkeys(COLUMNS)
    if result is None:
        record |= {"error_code": UNREADABLE, "error": "what Redis has for this row is no line of results"}
        return record, None
    record["custom_id"] = _text(result.get("custom_id"))
    response = result.get("response")
    if not isinstance(response, dict):
        error = _member(result, "error")
        record |= {
            "file": _text(error.get("file")),
            "line": _whole(error.get("line")),
            "error_code": _code(error),
            "error": _text(error.get("message")),
        }
        return record, None
    body = _member(response, "body")
    choices = [choice for choice in _items(body, "choices") if isinstance(choice, dict)]
    if choices:
        message = _member(choices[0], "message")
        texts = [_content(choice) for choice in choices]
        record |= {
            "text": texts[0],
            "texts": texts if len(texts) > 1 else None,
            "reasoning": _text(message.get("reasoning") or message.get("reasoning_content")),
            "tool_calls": _items(message, "tool_calls") or None,
            "finish_reason": _text(choices[0].get("finish_reason")),
        }
    usage = _member(body, "usage")
    for name in ("prompt_tokens", "completion_tokens"):
        record[name] = _whole(usage.get(name))
    return record, response


def _content(choice: dict[str, Any]) -> str | None:
    """The text of a choice, of a chat or of a completion."""
    return _text(_member(choice, "message").get("content")) if "message" in choice else _text(choice.get("text"))


def _member(of: dict[str, Any], name: str) -> dict[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _items(of: dict[str, Any], name: str) -> list[Any]:
    found = of.get(name)
    return found if isinstance(found, list) else []


def _text(value: Any) -> str | None:
    """A text that can be written as UTF-8; None for what is no text."""
    if not isinstance(value, str):
        return None
    return value if value.isascii() else value.encode(errors="replace").decode()


def _whole(value: Any) -> int | None:
    """A number that a 64-bit column holds; None for what is none."""
    return value if type(value) is int and abs(value) <= _LARGEST else None
