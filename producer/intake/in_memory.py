"""Rows that a program has in memory, as a source of lines like a file: they never touch a disk."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from producer.errors import Refused
from producer.intake.lines import MAX_LINE_BYTES, Line, TooLong

#: What rows are called where nobody gives them a name.
ROWS = "rows"


def line_of(row: Any, number: int) -> Line | TooLong:
    """A row as the line that would spell it in a file.

    Args:
        row: what a line of a file holds, as Python values: a short row or an OpenAI Batch line.
        number: its position among the rows, from 1: what a file's line number is.

    Raises:
        Refused: it is no mapping, or cannot be written as JSON.
    """
    if not isinstance(row, Mapping):
        raise Refused(f'row {number} is of type {type(row).__name__}; a row is a dict, such as {{"prompt": "..."}}')
    try:
        data = json.dumps(row if isinstance(row, dict) else dict(row), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"row {number} cannot be written as JSON: {error}") from None
    return TooLong(number, len(data), MAX_LINE_BYTES) if len(data) > MAX_LINE_BYTES else Line(number, data)


class RowsAtHand:
    """The rows of an iterable; `reopens` is True for one that can be gone through again."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], name: str) -> None:
        self.name = name
        self.reopens = iter(rows) is not rows
        self.rows = rows

    def lines(self) -> Iterator[Line | TooLong]:
        """Every row as a line.

        Raises:
            Refused: one is no row.
        """
        return (line_of(row, number) for number, row in enumerate(self.rows, 1))
