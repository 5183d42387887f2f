"""The file that consumed results are appended to: what is in it decides what is written."""

import fcntl
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from producer.cli.common import Refused

_BLOCK = 1 << 16


class ConsumedFile:
    """A results file that grows line by line, and is continued by whoever comes next.

    Lines are known by their number: the n-th result that a job gives away is line n, so what a consumer wrote before
    it died is found there and is not written again.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._reader = path.open("rb")
        self._line = self._offset = 0  # a place that was found before: this line begins at that byte

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> "Iterator[ConsumedFile]":
        """The file at `path`, made if need be, for this process alone; a line that is not whole is cut off.

        Raises:
            Refused: somebody else writes to it, or it is no file.
            OSError: it cannot be opened.
        """
        if path.exists() and not path.is_file():
            raise Refused(f"{path} is no file: results that are consumed must be on a disk")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(f"{path} is being written by another `producer results --consume`") from None
            _sync_folder(path)
            file = cls(path, descriptor)
            with file._reader:
                file._cut_torn_line()
                yield file
        finally:
            os.close(descriptor)

    def there(self, number: int, lines: Sequence[str]) -> int:
        """How many of these lines, of which the first is line `number` from 0, the file has already.

        Raises:
            Refused: it has others, or fewer than `number`, or more although there are none: it is not this job's file.
        """
        self._seek(number)
        for count, line in enumerate(lines):
            found = self._reader.readline()
            if not found:
                return count
            if found != _encoded(line):
                raise Refused(f"{self._path} has another line {number + count + 1} than the job: {self._older(number)}")
        if not lines and self._reader.readline():
            raise Refused(
                f"{self._path} has more lines than the {number} that the job gave away: {self._older(number)}"
            )
        return len(lines)

    def put(self, number: int, lines: Sequence[str]) -> None:
        """See that these lines, of which the first is line `number` from 0, are in the file and on the disk.

        Raises:
            Refused: as `there`; or the file is not at its path any more.
            OSError: the disk is full, for instance; what was written of it is found, or cut off, by the next one.
        """
        missing = memoryview(b"".join(map(_encoded, lines[self.there(number, lines) :])))
        while missing:
            missing = missing[os.write(self._descriptor, missing) :]
        os.fsync(self._descriptor)
        if not self._path.exists() or not os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
            raise Refused(f"{self._path} was removed or replaced; what was in it before is lost with it")

    def _seek(self, number: int) -> None:
        if number < self._line:  # Redis came back with a record that is older
            self._line = self._offset = 0
        self._reader.seek(self._offset)
        while self._line < number:
            line = self._reader.readline()
            if not line:
                raise Refused(
                    f"{self._path} has {self._line} lines, {number} of the job's results were consumed before: "
                    f"go on with the file that they were written to"
                )
            self._line += 1
            self._offset += len(line)

    def _older(self, number: int) -> str:
        """What to do about a file that is another job's, or has what Redis forgot: that was computed again since."""
        why = "it is another job's, or Redis came back without the last that it did"
        if number == 0:
            return f"{why}; name a new file"
        keep = f"head -n {number} {shlex.quote(str(self._path))} > NEW"
        return f"{why}; then `{keep}` keeps what still counts, and `--consume -o NEW` goes on"

    def _cut_torn_line(self) -> None:
        size = whole = os.fstat(self._descriptor).st_size
        while whole:
            start = max(0, whole - _BLOCK)
            newline = os.pread(self._descriptor, whole - start, start).rfind(b"\n")
            if newline >= 0:
                whole = start + newline + 1
                break
            whole = start
        if whole < size:
            os.ftruncate(self._descriptor, whole)


def _encoded(line: str) -> bytes:
    return line.encode() + b"\n"


def _sync_folder(path: Path) -> None:
    """A new file survives a power cut only if its folder is on the disk, too."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
