"""Which `custom_id` came before: exact, in bounded memory, for files of any length."""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from producer.scratch import Scratch

#: A line's number takes so many bits of a place's; the file's the rest.
_LINE_BITS = 40


class Place(NamedTuple):
    """Where a row is: its line, from 1, and the file, in a job of several."""

    line: int
    file: str = ""

    def __str__(self) -> str:
        """For people."""
        return f"line {self.line} of {self.file}" if self.file else f"line {self.line}"


class SeenIds(Scratch):
    """The ids of a job's rows and the places they came from."""

    def __init__(self) -> None:
        super().__init__("seen (id TEXT PRIMARY KEY, place INTEGER) WITHOUT ROWID")
        self._files: list[str] = [""]

    def add(self, named: Sequence[tuple[str, Place]]) -> dict[int, Place]:
        """Remember ids and where they are; many at once are cheaper than one by one.

        Returns the earlier place of each that was seen before, by its position in `named`.

        Raises:
            OSError: the temporary directory is full.
        """
        numbered = [(custom_id, self._number(place)) for custom_id, place in named]
        try:
            new = self.database.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", numbered).rowcount
            if new == len(numbered):
                return {}
            earlier: dict[int, Place] = {}
            for position, (custom_id, number) in enumerate(numbered):
                (first,) = self.database.execute("SELECT place FROM seen WHERE id = ?", (custom_id,)).fetchone()
                if first != number:
                    earlier[position] = self._place(first)
        except sqlite3.OperationalError as error:
            raise OSError(f"cannot compare custom_ids in the temporary directory: {error}") from None
        return earlier

    def _number(self, place: Place) -> int:
        if place.file != self._files[-1]:  # files come one after the other
            self._files.append(place.file)
        return (len(self._files) - 1) << _LINE_BITS | place.line

    def _place(self, number: int) -> Place:
        return Place(number & (1 << _LINE_BITS) - 1, self._files[number >> _LINE_BITS])
