"""JSON as a row needs it: anything that another program would read differently, or not at all, is refused.

Python's parser accepts more than JSON (NaN, repeated keys, lone surrogates, integers of any size) and its
result would not survive the way through Redis and the engine. orjson reads the lines that give no reason for doubt,
because intake must keep up with large files; all others are read again by Python's parser, which says what is wrong.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import orjson

from producer.intake.refused import Refused

#: Levels of arrays and objects in one line. Real requests (tools with JSON schemas) stay under 30.
MAX_DEPTH = 100
#: Integers are signed 64-bit, as every program that reads a row later can hold them.
INTEGER_RANGE = range(-(2**63), 2**63)

# The only ways to write a lone surrogate; and an integer of more than 64 bits or a number that overflows to infinity.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LARGE_NUMBER = re.compile(r"[0-9](?:[0-9]{18}|[eE]\+?[0-9]{3})")
# The same in bytes, several times as fast: all digits made alike, it is one of these.
_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE_NUMBERS = (b"0" * 19, b"0e000", b"0e+000")
# How every key ends; some of what is found may lie within a string.
_KEY_END = re.compile(rb'"[ \t\r\n]*:')
_SHOWN_KEY_CHARS = 60


def load(data: bytes) -> Any:
    """The value that a line spells.

    Raises:
        Refused: it is not UTF-8, not JSON, or not JSON that means the same to everyone.
    """
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH and not _may_hold_large_number(data):
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            pass  # Python's parser says what it is
        else:
            if _has_distinct_keys(data, value):
                return value
    return parse(decode(data))


def _may_hold_large_number(data: bytes) -> bool:
    digits, exponent, signed_exponent = _LARGE_NUMBERS
    alike = data.translate(_ALIKE)
    return digits in alike or exponent in alike or signed_exponent in alike


def _has_distinct_keys(data: bytes, value: Any) -> bool:
    """True where no object in `data` can have a key twice: each key has a colon behind it, and these are as few as
    the keys that `value` has."""
    colons = data.count(b":")
    if isinstance(value, dict) and len(value) == colons:
        return True
    keys = _count_keys(value)
    return keys in (colons, len(_KEY_END.findall(data)))


def _count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(_count_keys(part) for part in value.values() if isinstance(part, dict | list))
    if isinstance(value, list):
        return sum(_count_keys(part) for part in value if isinstance(part, dict | list))
    return 0


def decode(data: bytes) -> str:
    """The line as text.

    Raises:
        Refused: it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte, position = data[error.start], error.start + 1
        raise Refused("invalid_utf8", f"the line is not UTF-8: byte 0x{byte:02x} at position {position}") from None


def parse(text: str) -> Any:
    """The value that `text` spells.

    Raises:
        Refused: it is not JSON, or not JSON that means the same to everyone.
    """
    try:
        value = _strict.decode(text)
    except json.JSONDecodeError as error:
        reason = error.msg[0].lower() + error.msg[1:]
        raise Refused("invalid_json", f"the line is not JSON: {reason} (column {error.pos + 1})") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # Python's own limit on the digits of an integer
        raise _integer_too_large() from None
    if text.count("[") + text.count("{") > MAX_DEPTH or _SURROGATE.search(text) or _LARGE_NUMBER.search(text):
        _check(value)
    return value


def members(data: bytes, key: str) -> list[Any] | None:
    """Every value that the top-level object in `data` has for `key`, whatever else is wrong with it.

    Returns None where it is no object at all. Numbers come back as None.
    """
    try:
        value = _lenient.decode(data.decode())
    except (ValueError, RecursionError):
        return None
    return [item for name, item in value if name == key] if isinstance(value, _Pairs) else None


def _check(value: Any) -> None:
    """Look at every part of a parsed value; a loop, because it may be nested deeper than Python recurses."""
    level, depth = [value], 0
    while level:
        for item in level:
            if depth >= MAX_DEPTH and isinstance(item, dict | list):
                raise _too_deep()
            _check_scalar(item)
        level = [part for item in level for part in _parts(item)]
        depth += 1


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _check_scalar(value: Any) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            message = "the line holds half of a surrogate pair, which is no character"
            raise Refused("lone_surrogate", message) from None
    elif isinstance(value, int):
        if value not in INTEGER_RANGE:
            raise _integer_too_large()
    elif isinstance(value, float) and math.isinf(value):
        raise Refused("number_out_of_range", "the line holds a number too large for a 64-bit float")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Refused("duplicate_key", f"an object has the key {shown(key)} twice")
            seen.add(key)
    return value


def _refuse_constant(name: str) -> Any:
    raise Refused("invalid_number", f"the line holds {name}, which JSON does not have")


def shown(key: str) -> str:
    """A key from the user's data, quoted, on one line and short enough for a message."""
    return json.dumps(key if len(key) <= _SHOWN_KEY_CHARS else key[:_SHOWN_KEY_CHARS] + "...").replace("\x7f", "?")


def _too_deep() -> Refused:
    return Refused("nested_too_deep", f"the line nests arrays and objects more than {MAX_DEPTH} levels deep")


def _integer_too_large() -> Refused:
    return Refused("number_out_of_range", "the line holds an integer that does not fit into 64 bits")


class _Pairs(list[tuple[str, Any]]):
    """An object's members as written, repeated keys included."""


def _nothing(_: str) -> None:
    return None


_strict = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
_lenient = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_nothing, parse_int=_nothing, parse_float=_nothing)
