"""orjson and Python's parser are one: whatever the line, the outcome is that of the strict one."""

import json
from typing import Any

import orjson
import pytest
from fuzz_lines import fuzzed_lines
from hypothesis import given
from hypothesis import strategies as st

from producer.intake import strict_json
from producer.intake.refused import Refused


class Members:
    """An object as it is written: a key may be there twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


KEYS = st.sampled_from(["a", "b", 'a"', '":', "", "a\\", "é", "[{"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.sampled_from(list('ab":{}[]\\0e+\ud800\udc00é😀\n'))),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(KEYS, inner), max_size=3).map(Members),
    max_leaves=12,
)


def written(value: Any, ascii_only: bool, space: str) -> str:
    if isinstance(value, Members):
        pairs = (
            f"{json.dumps(key, ensure_ascii=ascii_only)}{space}:{space}{written(inner, ascii_only, space)}"
            for key, inner in value.pairs
        )
        return "{" + f",{space}".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + f",{space}".join(written(inner, ascii_only, space) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def outcome(read: Any, data: bytes) -> tuple[str, Any]:
    try:
        return "value", repr(read(data))
    except Refused as refused:
        return refused.fault.code, refused.fault.message


def slow(data: bytes) -> Any:
    return strict_json.parse(strict_json.decode(data))


@given(VALUES, st.booleans(), st.sampled_from(["", " ", "\t", "\r"]))
def test_both_ways_agree_on_what_is_nearly_json(value: Any, ascii_only: bool, space: str) -> None:
    data = written(value, ascii_only, space).encode(errors="surrogatepass")
    assert outcome(strict_json.load, data) == outcome(slow, data)


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_agree_on_lines_that_nobody_sane_would_submit(seed: int) -> None:
    for data in fuzzed_lines(3000, seed):
        assert outcome(strict_json.load, data) == outcome(slow, data), data


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":1,"a":2}',
        b'{"a" : 1, "a" : 2, "b": "\\":"}',
        b'{"a":1,"b":{"c":1,"c":2}}',
        b'[{"a":1},{"a":1,"a":":"}]',
        b'{"a\\u0062":1,"ab":2}',
    ],
)
def test_a_key_twice_is_never_overlooked(line: bytes) -> None:
    with pytest.raises(Refused, match="twice"):
        strict_json.load(line)


@pytest.mark.parametrize("line", [b'{"a":1,"b":{"c":"x"}}', b'{"p":"a: b","q":[{"r":"http://x"}]}', b"[1.5,-7,1e22]"])
def test_usual_lines_need_no_second_look(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "parse", None)
    assert strict_json.load(line) == orjson.loads(line)


@pytest.mark.parametrize("number", [b"9" * 19, b"1e999", b"1E+400", b"0." + b"3" * 19, b"5e1000"])
def test_large_numbers_get_a_second_look(number: bytes) -> None:
    assert outcome(strict_json.load, b"[" + number + b"]") == outcome(slow, b"[" + number + b"]")
    assert strict_json._may_hold_large_number(number)
