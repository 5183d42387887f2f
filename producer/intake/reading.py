"""A source as rows: every line parsed, and no two rows with one `custom_id`."""

from collections.abc import Iterator
from typing import Literal

from producer.intake.lines import Line, TooLong
from producer.intake.rows import Reject, parse_line
from producer.intake.sources import Source
from producer.intake.unique import Place, SeenIds
from producer.record.models import Row, RowFault

OnDuplicate = Literal["refuse", "error-row"]
"""What becomes of a `custom_id` that was there before: the whole input is refused, or the later row alone."""

#: The code of the error that such a row alone becomes.
DUPLICATE = "duplicate_custom_id"

#: Lines whose ids are compared in one go, and about how many bytes of them. Enough to be cheap, few enough to hold.
_LINES = 256
_BYTES = 1 << 20


class DuplicateIds(Exception):  # noqa: N818 - a finding about the input
    """Two lines have one custom_id; the message names both."""


def read_rows(source: Source, on_duplicate: OnDuplicate) -> Iterator[tuple[Line | TooLong, Row | Reject]]:
    """Every line with what it spells, in order; memory does not grow with them.

    Raises:
        DuplicateIds: two rows have one name, and that is to be refused.
        SourceError, OSError: as `Source.lines`; or the temporary directory is full.
    """
    count = 0
    with SeenIds() as seen:
        for lines in _portions(source.lines()):
            rows = [parse_line(line, index) for index, line in enumerate(lines, count)]
            count += len(rows)
            for position, earlier in _repeated(seen, rows).items():
                row = rows[position]
                assert row.custom_id is not None
                again = f"custom_id {row.custom_id!r} is on {earlier}"
                if on_duplicate == "refuse":
                    raise DuplicateIds(f"{again} and again on {_place(row)}")
                fault = RowFault(DUPLICATE, f"{again} already")
                rows[position] = Reject(row.index, row.line, row.custom_id, fault, row.file)
            yield from zip(lines, rows, strict=True)


def _repeated(seen: SeenIds, rows: list[Row | Reject]) -> dict[int, Place]:
    """Where the names of rows were before, by the position of the row."""
    positions = [position for position, row in enumerate(rows) if row.custom_id is not None]
    found = seen.add([(row.custom_id, _place(row)) for row in rows if row.custom_id is not None])
    return {positions[at]: earlier for at, earlier in found.items()}


def _place(row: Row | Reject) -> Place:
    return Place(row.line, row.file)


def _portions(lines: Iterator[Line | TooLong]) -> Iterator[list[Line | TooLong]]:
    portion: list[Line | TooLong] = []
    size = 0
    for line in lines:
        portion.append(line)
        size += len(line.data) if isinstance(line, Line) else 0
        if len(portion) == _LINES or size > _BYTES:
            yield portion
            portion, size = [], 0
    yield portion
