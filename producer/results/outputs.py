"""Files that appear together, whole and on the disk, or not at all."""

import errno
import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol


class Stream(Protocol):
    """Whatever takes bytes."""

    def write(self, data: bytes, /) -> Any:
        """Write all of them."""

    def flush(self) -> Any:
        """Hold none of them back."""


class Output(io.RawIOBase):
    """A file being written, which knows its size and its digest; its errors name the file that a user knows.

    Once it is abandoned, what is still written to it is dropped: a writer that was not closed may end at any time, and
    some write a footer then.
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        super().__init__()
        self._stream = stream
        self._path = path
        self._abandoned = False
        self._digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any, /) -> int:
        """Write all of it."""
        if not self._abandoned:
            with named(self._path):
                self._stream.write(data)
        return self.note(data)

    def note(self, data: Any) -> int:
        """Count what is in the stream already; returns its size."""
        self._digest.update(data)
        size = memoryview(data).nbytes
        self.size += size
        return size

    def tell(self) -> int:
        """How many bytes went through."""
        return self.size

    def flush(self) -> None:
        """Give them to the system."""
        if not self._abandoned:
            with named(self._path):
                self._stream.flush()

    def abandon(self) -> None:
        """Nobody wants the file any more."""
        self._abandoned = True

    @property
    def sha256(self) -> str:
        """Of all that was written, in hex."""
        return self._digest.hexdigest()


class Outputs:
    """The files of one command. What is written before `commit` is in scratch files beside them."""

    def __init__(self) -> None:
        self._staged: list[tuple[IO[bytes], Path]] = []
        self._added: list[Output] = []

    @classmethod
    @contextmanager
    def opened(cls) -> "Iterator[Outputs]":
        """No files yet; what was not committed at the end leaves nothing behind."""
        outputs = cls()
        try:
            yield outputs
        finally:
            outputs._discard()

    def add(self, path: Path) -> Output:
        """Write what will be the file `path`, which is replaced if it is there.

        Raises:
            OSError: nothing can be written there.
        """
        with named(path):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            real = path.resolve()  # the file that a link means, not the link
            stream = tempfile.NamedTemporaryFile(dir=real.parent, prefix=f".{real.name}.", delete=False)  # noqa: SIM115
        self._staged.append((stream, real))
        self._added.append(Output(stream, path))
        return self._added[-1]

    def commit(self) -> None:
        """Put all files in place, in the order in which they were added; each is on the disk before the first is there.

        Raises:
            OSError: the disk is full, for instance.
        """
        for stream, path in self._staged:
            with named(path):
                stream.flush()
                os.fsync(stream.fileno())
                os.fchmod(stream.fileno(), 0o666 & ~_umask())
        while self._staged:
            stream, path = self._staged[0]
            with named(path):
                Path(stream.name).replace(path)
            stream.close()
            self._staged.pop(0)
            sync_folder(path)

    def _discard(self) -> None:
        for output in self._added:
            output.abandon()
        for stream, _ in self._staged:
            Path(stream.name).unlink(missing_ok=True)
            with suppress(OSError):  # what could not be written was said, or nobody wants it any more
                stream.close()


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Lets an error of the system be about this file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(path: Path) -> None:
    """A new file survives a power cut only if its folder is on the disk, too."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
