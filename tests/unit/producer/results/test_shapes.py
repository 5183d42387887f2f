"""Lines of results: answered or failed, and what a flat record has of them."""

import json
from typing import Any

import pytest

from producer.record.models import Answer, Outcome, Row, RowFault
from producer.results.shapes import COLUMNS, UNREADABLE, Tally, compact, flat, part, split_lines, table_row

URL = "/v1/chat/completions"


def answered(name: str = "a", **body: Any) -> bytes:
    answer = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], **body}
    return Outcome.answered(Row(0, 1, name, URL, {}), Answer(answer, 1, 2)).line.encode()


def failed(name: str | None = "f", code: str = "no", message: str = "not this one", file: str = "") -> bytes:
    return Outcome.failed_row(0, 7, name, RowFault(code, message), file).line.encode()


def text(*lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in lines)


#: What a model, or a user, may say to be taken for an error.
SLY = '"response":null,"error":{"code":"x"}\n'


def test_failed_rows_are_told_from_answered_ones_in_order() -> None:
    good = [answered(str(n)) for n in range(4)]
    bad = [failed("x", "one"), failed(None, "two"), failed("y", "one")]
    parted = part(text(bad[0], good[0], good[1], bad[1], bad[2], good[2], good[3]))
    assert parted.answered == text(*good)
    assert parted.failed == text(*bad)
    assert parted.codes == {"one": 2, "two": 1}


@pytest.mark.parametrize("lines", [b"", text(answered()), text(failed()), text(failed(), failed())])
def test_parts_make_up_the_whole(lines: bytes) -> None:
    parted = part(lines)
    assert parted.answered + parted.failed == lines
    assert parted.codes.total() == parted.failed.count(b"\n")


def test_what_only_speaks_of_errors_is_an_answer() -> None:
    nested = answered(choices=[], response=None, error={"code": "inner"})
    lines = text(answered(SLY), answered(choices=[{"text": SLY}]), nested, failed(SLY, "real", SLY))
    parted = part(lines)
    assert parted.answered.count(b"\n") == 3
    assert parted.codes == {"real": 1}


def test_lines_of_another_hand() -> None:
    spaced = json.dumps({"custom_id": "s", "response": None, "error": {"code": 7}}).encode()
    parted = part(text(spaced, b'{"response":null', b'["response", null]', b"\xff"))
    assert (parted.failed, parted.codes) == (text(spaced), {"unknown": 1})
    assert parted.answered == text(b'{"response":null', b'["response", null]', b"\xff")


def test_a_tally_adds_up() -> None:
    tally = Tally()
    for page in (text(answered(), failed()), b"", text(failed(code="other"))):
        tally.add(page)
    assert (tally.lines, tally.failed, tally.codes) == (3, 2, {"no": 1, "other": 1})


def test_the_record_of_an_answer() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2**63}
    message = {"content": "a\u2028b", "reasoning": "hm", "tool_calls": [{"id": "t", "n": 2**70}]}
    line = answered("id", choices=[{"message": message, "finish_reason": "stop"}], usage=usage)
    record = flat(line)
    assert tuple(record) == COLUMNS
    assert {name: value for name, value in record.items() if value is not None} == {
        "custom_id": "id",
        "text": "a\u2028b",
        "reasoning": "hm",
        "tool_calls": message["tool_calls"],
        "finish_reason": "stop",
        "prompt_tokens": 3,  # the other number has no place in a column of 64 bits
    }
    row = table_row(line)
    assert json.loads(row["tool_calls"]) == message["tool_calls"]
    assert json.loads(row["response"]) == json.loads(line)["response"]


def test_several_choices_and_completions() -> None:
    one, two = ({"text": word, "finish_reason": "length"} for word in ("one", "two"))
    assert (flat(answered(choices=[one]))["text"], flat(answered(choices=[one]))["texts"]) == ("one", None)
    record = flat(answered(choices=[one, two]))
    assert (record["text"], record["texts"], record["finish_reason"]) == ("one", ["one", "two"], "length")


def test_the_record_of_an_error() -> None:
    record = flat(failed("f", "no", "why", "rows.jsonl"))
    assert tuple(record) == COLUMNS
    told = {"custom_id": "f", "file": "rows.jsonl", "line": 7, "error_code": "no", "error": "why"}
    assert {name: value for name, value in record.items() if value is not None} == told
    assert table_row(failed())["response"] is None


@pytest.mark.parametrize(
    "line",
    [b"", b"\xff", b"7", b"[]", b'{"a":NaN}', b'{"response":{"body":{"n":NaN}}}', b"[" * 100_000],
    ids=lambda line: line[:12],
)
def test_what_is_no_result_is_a_record_that_says_so(line: bytes) -> None:
    for record in (flat(line), table_row(line)):
        assert (record["error_code"], record["custom_id"]) == (UNREADABLE, None)
        assert compact(record)


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"custom_id": 7, "response": None, "error": "text"},
        {"custom_id": "\ud800", "response": {"body": 3}},
        {"custom_id": "x", "response": {"body": {"choices": [3, {"message": {"content": ["\ud800"]}}], "usage": []}}},
        {"custom_id": "x", "response": {"body": {"choices": [{"message": {"tool_calls": ["\ud800"]}}]}}},
    ],
    ids=range(5),
)
def test_any_object_makes_a_record_that_can_be_written(result: dict[str, Any]) -> None:
    line = json.dumps(result).encode()
    for record in (flat(line), table_row(line)):
        compact(record).decode()
    assert all(
        isinstance(table_row(line)[name], str | None) for name in ("custom_id", "text", "tool_calls", "response")
    )


def test_lines_are_parted_at_newlines_only() -> None:
    assert list(split_lines("a\u2028\r\x85\n\nb\n".encode())) == ["a\u2028\r\x85".encode(), b"", b"b"]
