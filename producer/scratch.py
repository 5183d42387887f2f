"""Tables that need not fit into memory, and that no crash can leave behind."""

import sqlite3
from typing import Self

# What SQLite keeps in memory before it spills to its temporary file, in KiB: about half a million short ids.
_CACHE_KIB = 32 * 1024


class Scratch:
    """A temporary SQLite database: it lives in memory while it is small, then in a file of the temporary directory
    that is gone when this is closed, or when the process ends in whatever way."""

    def __init__(self, *tables: str) -> None:
        self.database = sqlite3.connect("", isolation_level=None)
        self.database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self.database.execute("PRAGMA journal_mode = OFF")
        for table in tables:
            self.database.execute(f"CREATE TABLE {table}")
        self.database.execute("BEGIN")  # one transaction for everything: nothing here is ever committed

    def close(self) -> None:
        """Forget everything. Safe to call twice."""
        self.database.close()

    def __enter__(self) -> Self:
        """This; closed at the end of the `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
