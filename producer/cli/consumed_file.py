"""The file that consumed results are appended to: what is in it decides what is written."""

import fcntl
import hashlib
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from producer.cli.common import Refused
from producer.record.consume import Batch
from producer.results.outputs import sync_folder


class ConsumedFile:
    """A results file that grows line by line, and is continued by whoever comes next.

    Lines are known by their number: the n-th result that a job gives away is line n, so what a consumer wrote before
    it died is found there and is not written again. Nothing is ever cut off or replaced: a file that has anything
    else in it is refused as it is.
    """

    def __init__(self, path: Path, job_id: str, descriptor: int) -> None:
        self._path = path
        self._job_id = job_id
        self._descriptor = descriptor
        self._reader = path.open("rb")
        self._rewind()

    @classmethod
    @contextmanager
    def opened(cls, path: Path, job_id: str) -> "Iterator[ConsumedFile]":
        """The file at `path` for a job, for this process alone; made if need be, and removed if it is then refused.

        Raises:
            Refused: somebody else writes to it, or it is no file.
            OSError: it cannot be opened.
        """
        is_new = not path.exists()
        if not is_new and not path.is_file():
            raise Refused(f"{path} is no file: results that are consumed must be on a disk")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(f"{path} is being written by another `producer results --consume`") from None
            sync_folder(path)
            file = cls(path, job_id, descriptor)
            with file._reader:
                try:
                    yield file
                except Refused:
                    if is_new:
                        file._remove_empty()
                    raise
        finally:
            os.close(descriptor)

    def missing(self, batch: Batch) -> bytes:
        """What must be appended for the file to have these results: the rest of a line that is torn, and lines.

        Raises:
            Refused: what was consumed before them is not what the file begins with, or it goes on with something else.
        """
        self._seek(batch)
        lines = [_encoded(line) for line in batch.lines]
        for count, line in enumerate(lines):
            found = self._reader.readline()
            if found == line:
                continue
            if line.startswith(found):  # the file ends here, or within this line
                return b"".join(lines[count:])[len(found) :]
            number = batch.consumed
            raise Refused(f"{self._path} has another line {number + count + 1} than the job: {self._older(number)}")
        if not lines and self._reader.readline():
            number = batch.consumed
            raise Refused(
                f"{self._path} has more than the {number} lines that the job gave away: {self._older(number)}"
            )
        return b""

    def put(self, batch: Batch) -> str:
        """See that these results are in the file and on the disk; returns the digest of all lines up to their last.

        Raises:
            Refused: as `missing`; or the file is not at its path any more.
            OSError: the disk is full, for instance; what was written of it is found by the next one, which goes on.
        """
        missing = memoryview(self.missing(batch))
        while missing:
            missing = missing[os.write(self._descriptor, missing) :]
        os.fsync(self._descriptor)
        if not self._is_in_place():
            raise Refused(f"{self._path} was removed or replaced; what was in it before is lost with it")
        digest = self._digest.copy()
        digest.update(b"".join(map(_encoded, batch.lines)))
        return digest.hexdigest()

    def _rewind(self) -> None:
        # A place that was found before: this line begins at that byte, and this is the digest of all before it.
        self._line = self._offset = 0
        self._digest = hashlib.sha256()

    def _seek(self, batch: Batch) -> None:
        """Go to where these results begin, and see that all that were consumed before are the lines up to there."""
        if batch.consumed < self._line:  # Redis came back with a record that is older
            self._rewind()
        self._reader.seek(self._offset)
        while self._line < batch.consumed:
            line = self._reader.readline()
            if not line.endswith(b"\n"):
                raise Refused(
                    f"{self._path} has {self._line} lines, {batch.consumed} of the job's results were consumed before: "
                    f"{self._elsewhere()}"
                )
            self._line += 1
            self._offset += len(line)
            self._digest.update(line)
        if batch.consumed and self._digest.hexdigest() != batch.digest:
            raise Refused(
                f"{self._path} has other lines than the {batch.consumed} of the job's results that were consumed "
                f"before: {self._elsewhere()}"
            )

    def _elsewhere(self) -> str:
        """What to do when what left Redis is not in this file."""
        return (
            f"go on with the file that they were written to; if it is lost or damaged, "
            f"`producer results {self._job_id} -o OTHER` writes what is still in Redis"
        )

    def _older(self, number: int) -> str:
        """What to do about a file that is another job's, or has what Redis forgot: that was computed again since."""
        why = "it is another job's, or Redis came back without the last that it did"
        if number == 0:
            return f"{why}; name a new file"
        keep = f"head -n {number} {shlex.quote(str(self._path))} > NEW"
        return f"{why}; then `{keep}` keeps what still counts, and `--consume -o NEW` goes on"

    def _is_in_place(self) -> bool:
        return self._path.exists() and os.path.samestat(self._path.stat(), os.fstat(self._descriptor))

    def _remove_empty(self) -> None:
        if self._is_in_place() and os.fstat(self._descriptor).st_size == 0:
            self._path.resolve().unlink()  # the file that a link means, not the link


def _encoded(line: str) -> bytes:
    return line.encode(errors="surrogateescape") + b"\n"  # what is no text in Redis stays as it is
