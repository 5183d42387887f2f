"""Which `custom_id` came before: exact, in bounded memory, for files of any length."""

import sqlite3
from typing import Self

# What SQLite keeps in memory before it spills to its temporary file, in KiB: about half a million short ids.
_CACHE_KIB = 32 * 1024


class SeenIds:
    """The ids of one file and the lines they came from.

    A temporary SQLite database: it lives in memory while it is small, then in a file of the temporary directory
    that is gone when this is closed, or when the process ends in whatever way.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE seen (id TEXT PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        self._database.execute("BEGIN")  # one transaction for everything: nothing here is ever committed

    def add(self, custom_id: str, line: int) -> int | None:
        """Remember that `line` is called `custom_id`; if an earlier line is, return that one's number instead.

        Raises:
            OSError: the temporary directory is full.
        """
        try:
            cursor = self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (custom_id, line))
            if cursor.rowcount == 1:
                return None
            earlier = self._database.execute("SELECT line FROM seen WHERE id = ?", (custom_id,)).fetchone()
        except sqlite3.OperationalError as error:
            raise OSError(f"cannot compare custom_ids in the temporary directory: {error}") from None
        return int(earlier[0])

    def close(self) -> None:
        """Forget everything. Safe to call twice."""
        self._database.close()

    def __enter__(self) -> Self:
        """This; closed at the end of the `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
