"""Lines that are too many for memory, on disk until they are wanted: a file that no crash can leave behind."""

import asyncio
import os
import tempfile
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line lies in the file."""

    at: int
    size: int


class Spill:
    """An unlinked temporary file (in `TMPDIR`), made on first use, emptied whenever nothing lies in it."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._end = 0
        self._kept = 0
        #: Bytes that lie in it.
        self.bytes = 0

    async def keep(self, line: bytes) -> Place:
        """Put a line on disk.

        Raises:
            OSError: there is no room.
        """
        if self._file is None:
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
        place = Place(self._end, len(line))
        # Counted first: others are kept meanwhile.
        self._end += place.size
        self._kept += 1
        self.bytes += place.size
        try:
            await asyncio.to_thread(_write, self._file, line, place.at)
        except OSError:
            self.forget(place)
            raise
        return place

    async def read(self, place: Place) -> bytes:
        """The line that lies there."""
        assert self._file is not None
        return await asyncio.to_thread(os.pread, self._file, place.size, place.at)

    def forget(self, place: Place) -> None:
        """The line is not wanted any more."""
        assert self._file is not None
        self._kept -= 1
        self.bytes -= place.size
        if not self._kept:
            self._end = 0
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Give the file up."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _write(file: int, line: bytes, at: int) -> None:
    rest = memoryview(line)
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written
