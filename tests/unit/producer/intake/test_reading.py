"""A source as rows: names that are there twice."""

from collections.abc import Iterator

import pytest
from given_lines import GivenLines

from producer.intake import reading
from producer.intake.lines import Line
from producer.intake.reading import DuplicateIds, OnDuplicate, read_rows
from producer.intake.rows import Reject
from producer.record.models import Row

LINES = b"""
{"custom_id": "a", "prompt": "1"}
{"custom_id": "row-4", "prompt": "2"}
{"prompt": "3"}
{broken
{"custom_id": "a", "prompt": ""}
{"custom_id": "b", "prompt": "4"}
{"custom_id": "a", "prompt": "5"}
{"custom_id": "b", "prompt": "6"}
"""


def read(data: bytes, on_duplicate: OnDuplicate = "error-row") -> list[Row | Reject]:
    return [row for _, row in read_rows(GivenLines(data), on_duplicate)]


@pytest.mark.parametrize("lines", [1, 2, 3, 256])
def test_later_rows_become_errors_that_name_the_first(monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    monkeypatch.setattr(reading, "_LINES", lines)
    rows = read(LINES)
    assert [row.index for row in rows] == list(range(8))
    assert [row.custom_id for row in rows] == ["a", "row-4", "row-4", None, "a", "b", "a", "b"]
    faults = {row.line: (row.fault.code, row.fault.message) for row in rows if isinstance(row, Reject)}
    assert {line: code for line, (code, _) in faults.items()} == {
        4: "duplicate_custom_id",
        5: "invalid_json",
        6: "duplicate_custom_id",
        8: "duplicate_custom_id",
        9: "duplicate_custom_id",
    }
    assert faults[4][1] == "custom_id 'row-4' is on line 3 already"
    assert faults[8][1] == "custom_id 'a' is on line 2 already"
    assert faults[9][1] == "custom_id 'b' is on line 7 already"


@pytest.mark.parametrize("lines", [1, 256])
def test_or_the_whole_input_is_refused(monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    monkeypatch.setattr(reading, "_LINES", lines)
    with pytest.raises(DuplicateIds) as refused:
        read(LINES, "refuse")
    assert str(refused.value) == "custom_id 'row-4' is on line 3 and again on line 4"


def test_in_several_files_the_file_is_named() -> None:
    class Two(GivenLines):
        def lines(self) -> Iterator[Line]:
            yield Line(7, b'{"custom_id": "a", "prompt": "x"}', "one.jsonl")
            yield Line(7, b'{"custom_id": "a", "prompt": "x"}', "two.jsonl")

    _, (_, second) = read_rows(Two(b""), "error-row")
    assert isinstance(second, Reject)
    assert (second.line, second.file) == (7, "two.jsonl")
    assert second.fault.message == "custom_id 'a' is on line 7 of one.jsonl already"


def test_no_more_lines_are_held_than_need_be(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    class Endless(GivenLines):
        def lines(self) -> Iterator[Line]:
            nonlocal taken
            while True:
                taken += 1
                yield Line(taken, b'{"prompt": "%s"}' % (b"x" * 1000))

    monkeypatch.setattr(reading, "_BYTES", 10_000)
    rows = read_rows(Endless(b""), "refuse")
    next(rows)
    assert taken == 10
