"""How rows become calls of `stage`: the same calls from the same rows, which is what a submission is continued by."""

import hashlib
import sqlite3
from dataclasses import dataclass, field

from producer.record.models import SHARD_ROWS
from producer.scratch import Scratch

#: Rows and bytes of a shard that gets no further copies of its rows.
MOST_ROWS = 1024
MOST_BYTES = 1 << 20

#: Refused rows, or copies, that are gathered before they are staged.
_PAGE = 256


@dataclass(slots=True)
class Part:
    """Good rows of one shard: the index of each, and its JSON."""

    indices: list[int] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Call:
    """What one call of `stage` adds.

    Attributes:
        number: from 1.
        digest: of all rows that were read by then.
        parts: its good rows, by shard.
        copies: how many of these are equal to an earlier one.
        refused: (index, result line) of rows that were refused at intake.
        rows: how many rows there are with it.
        size: bytes of the rows, and characters of the result lines.
    """

    number: int
    digest: str
    parts: dict[int, Part]
    copies: int
    refused: list[tuple[int | str, str]]
    rows: int
    size: int

    def argv(self, job_id: str, owner: str) -> list[str | int | bytes]:
        """As `lua/stage.lua` wants it."""
        places = " ".join(f"{shard}:{','.join(map(str, part.indices))}" for shard, part in self.parts.items())
        lines = b"\n".join([text for part in self.parts.values() for text in part.texts])
        sum_ = hashlib.sha1(lines, usedforsecurity=False).hexdigest()
        argv: list[str | int | bytes] = [job_id, owner, self.number, self.digest, self.copies, places, lines, sum_]
        for refused in self.refused:
            argv += refused
        return argv


class Packing:
    """Gathers rows, in input order, until they are `cut` into a call."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._calls = self._rows = 0
        self._shards = 0
        self._current: int | None = None
        self._current_part: Part | None = None
        self._distinct = 0
        self._copies = 0
        self._bytes = 0
        self._parts: dict[int, Part] = {}
        self._refused: list[tuple[int | str, str]] = []

    def current(self) -> int:
        """The shard that the next row without an equal earlier one gets into."""
        if self._current is None:
            self._current = self.fresh()
            self._distinct = 0
        return self._current

    def fresh(self) -> int:
        """A new shard."""
        self._shards += 1
        return self._shards - 1

    def add(self, index: int, text: bytes) -> bool:
        """Gather a row; True when it is time to cut."""
        part = self._current_part
        if part is None:
            part = self._current_part = self._part(self.current())
        part.indices.append(index)
        part.texts.append(text)
        self._bytes += len(text)
        self._distinct += 1
        if self._distinct < SHARD_ROWS and self._bytes <= self._most_bytes:
            return False
        self._current = self._current_part = None
        return True

    def add_copy(self, shard: int, index: int, text: bytes) -> bool:
        """Gather a row that is equal to an earlier one, of that shard or of one that is full."""
        part = self._part(shard)
        part.indices.append(index)
        part.texts.append(text)
        self._bytes += len(text)
        self._copies += 1
        return self._copies == _PAGE or self._bytes > self._most_bytes

    def refuse(self, index: int | str, line: str) -> bool:
        """Gather a row that ended at intake with this line of the results file."""
        self._refused.append((index, line))
        self._bytes += len(line)
        return len(self._refused) == _PAGE or self._bytes > self._most_bytes

    def cut(self, digest: str) -> Call | None:
        """All that was gathered since the last cut, as a call; None where that is nothing."""
        parts, refused, copies, size = self._parts, self._refused, self._copies, self._bytes
        if not parts and not refused:
            return None
        self._parts, self._refused, self._current_part = {}, [], None
        self._copies = self._bytes = 0
        self._calls += 1
        self._rows += sum(len(part.indices) for part in parts.values()) + len(refused)
        return Call(self._calls, digest, parts, copies, refused, self._rows, size)

    def _part(self, shard: int) -> Part:
        part = self._parts.get(shard)
        if part is None:
            part = self._parts[shard] = Part()
        return part


class Copies(Scratch):
    """Which shard a row belongs to whose request was asked for before: that of its first occurrence, while it is small.

    So it is answered together with it, by one worker, in one claim.
    """

    def __init__(self) -> None:
        super().__init__(
            "groups (request BLOB PRIMARY KEY, shard INTEGER) WITHOUT ROWID",
            "shards (shard INTEGER PRIMARY KEY, rows INTEGER, bytes INTEGER)",
        )

    def put(self, packing: Packing, request: bytes, index: int, text: bytes) -> bool:
        """Gather a row in the shard where it belongs; True when it is time to cut.

        Raises:
            OSError: the temporary directory is full.
        """
        try:
            found = self.database.execute(
                "SELECT shard, rows, bytes FROM groups JOIN shards USING (shard) WHERE request = ?", (request,)
            ).fetchone()
            if found is None:
                self._count(packing.current(), text)
                self.database.execute("INSERT INTO groups VALUES (?, ?)", (request, packing.current()))
                return packing.add(index, text)
            shard, rows, size = found
            if rows >= MOST_ROWS or size + len(text) > MOST_BYTES:
                shard = packing.fresh()
                self.database.execute("UPDATE groups SET shard = ? WHERE request = ?", (shard, request))
            self._count(shard, text)
        except sqlite3.OperationalError as error:
            raise OSError(f"cannot look for equal rows in the temporary directory: {error}") from None
        return packing.add_copy(shard, index, text)

    def _count(self, shard: int, text: bytes) -> None:
        self.database.execute(
            "INSERT INTO shards VALUES (?, 1, ?) "
            "ON CONFLICT DO UPDATE SET rows = rows + 1, bytes = bytes + excluded.bytes",
            (shard, len(text)),
        )
