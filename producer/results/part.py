"""FILE.part: the results of a job that is followed, as far as they are, continued by whoever comes next."""

import fcntl
import hashlib
import io
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from producer.errors import Refused
from producer.record.fetch import Page, Place, mark
from producer.results.formats import Format
from producer.results.manifest import WrittenFile
from producer.results.outputs import Output, named, sync_folder
from producer.results.shapes import Tally

_CHUNK_BYTES = 1 << 20


def whole_lines(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """The whole lines of a file from here on, many at a time; what follows its last newline is left out."""
    rest: list[bytes] = []
    while chunk := stream.read(_CHUNK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join((*rest, chunk[:end]))
            rest = []
        if end < len(chunk):
            rest.append(chunk[end:])


class Part:
    """The lines of a job in the order in which its rows ended, as the record has them, in a file of their own.

    Where to go on is known by how many lines there are, and by the last of them: each result has an id of its own, so
    a record that has the same line at that place is the one that all lines before it are from.

    Attributes:
        path: the file.
        place: where the next page begins.
        tally: what is in it.
    """

    def __init__(self, path: Path, stream: io.BufferedRandom) -> None:
        self.path = path
        self.tally = Tally()
        self._stream = stream
        self._output = Output(stream, path)
        last = b""
        for lines in whole_lines(stream):
            self.tally.add(lines)
            self._output.note(lines)
            last = lines[lines.rfind(b"\n", 0, -1) + 1 : -1]
        self.place = Place(self.tally.lines, mark(last) if self.tally.lines else "")
        stream.seek(self._output.size)
        self._torn = stream.read()

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> "Iterator[Part]":
        """The file beside `path`, which it will become, for this process alone.

        Raises:
            Refused: somebody else writes to it.
            OSError: it cannot be opened.
        """
        path = path.resolve()  # the file that a link means, not the link
        part = path.with_name(f"{path.name}.part")
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
        with os.fdopen(descriptor, "r+b") as stream:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(f"{part} is being written by another `producer results --follow`") from None
            if not part.exists() or not os.path.samestat(part.stat(), os.fstat(descriptor)):
                raise Refused(f"{part} was just completed by another `producer results --follow`")
            sync_folder(part)
            yield cls(part, stream)

    def add(self, page: Page) -> None:
        """Append the next page and see it on the disk; a line that was torn must be the one that goes on there.

        Raises:
            Refused: it is another one.
            OSError: the disk is full, for instance.
        """
        if not page.lines.startswith(self._torn):
            raise self.foreign()
        self._stream.seek(self._output.size)
        self._torn = b""
        self.tally.add(page.lines)
        self._output.write(page.lines)
        self._output.flush()
        with named(self.path):
            os.fdatasync(self._stream.fileno())
        self.place = page.end

    def foreign(self) -> Refused:
        """What to say when the job has other lines than the file."""
        return Refused(
            f"{self.path} has other lines than the job: its rows were retried or consumed, Redis came back older, or "
            f"the file is another job's; name another file, or `rm {shlex.quote(str(self.path))}` and begin anew"
        )

    def lines(self) -> Iterator[bytes]:
        """All lines, many at a time."""
        self._stream.seek(0)
        return whole_lines(self._stream)

    def written(self, path: Path) -> WrittenFile:
        """What the file at `path` will be.

        Raises:
            Refused: there is more in it than lines of the job.
        """
        if self._torn:
            raise self.foreign()
        name = path.resolve().name
        return WrittenFile(
            name, "results", Format.OPENAI.value, self.tally.lines, self._output.size, self._output.sha256
        )

    def become(self, path: Path) -> None:
        """Put the file in its place, as it is.

        Raises:
            OSError: it cannot be put there.
        """
        path = path.resolve()
        with named(path):
            self.path.replace(path)
            sync_folder(path)

    def remove(self) -> None:
        """Remove it: what was in it is elsewhere."""
        self.path.unlink(missing_ok=True)


def scanned(path: Path) -> tuple[Tally, WrittenFile]:
    """What a file of results has that is complete and as the record had it."""
    tally, digest, size = Tally(), hashlib.sha256(), 0
    with path.open("rb") as stream:
        for lines in whole_lines(stream):
            tally.add(lines)
            digest.update(lines)
            size += len(lines)
    return tally, WrittenFile(path.name, "results", Format.OPENAI.value, tally.lines, size, digest.hexdigest())
