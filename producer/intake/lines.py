"""A file as numbered lines, read as a stream: memory stays bounded whatever the file holds."""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from producer.record.models import RowFault

#: The longest line that is read into memory, in bytes without its newline. A row of 128k tokens has about 1 MB.
MAX_LINE_BYTES = 16 * 2**20

_BOM = b"\xef\xbb\xbf"
_PIECE_BYTES = 2**16
_new = tuple.__new__  # half the time of `Line(...)`, which is much where there are millions


class Line(NamedTuple):
    """A non-blank line of a file, or a row of a table spelled as one.

    Attributes:
        number: its number in the file, from 1; in a table, the row's.
        data: its bytes without the line ending.
        file: the file that it is from, in a job of several; else "".
        fault: why it is no row, where that is known before it is parsed.
    """

    number: int
    data: bytes
    file: str = ""
    fault: RowFault | None = None


class TooLong(NamedTuple):
    """A line that was skipped because it has more than `limit` bytes: its number, its size, and `Line.file`."""

    number: int
    size: int
    limit: int
    file: str = ""


def numbered_lines(stream: BinaryIO, *, file: str = "", limit: int = MAX_LINE_BYTES) -> Iterator[Line | TooLong]:
    r"""Yield the non-blank lines of a buffered binary stream in order.

    Only b"\n" ends a line (JSON strings may hold U+2028, U+0085 and the like); a "\r" before it goes too.
    Blank lines (ASCII whitespace alone) are skipped but counted. A byte order mark at the very start is
    dropped. The last line needs no newline. At most about `limit` bytes are held at any time. `file` is what each
    line says that it is from.

    Raises:
        OSError: the stream cannot be read.
    """
    number = 0
    while data := stream.readline(limit + 1):
        number += 1
        if len(data) > limit and not data.endswith(b"\n"):
            yield TooLong(number, len(data) + _skip_line(stream), limit, file)
            continue
        if number == 1:
            data = data.removeprefix(_BOM)
        if data and not data.isspace():
            yield _new(Line, (number, data.removesuffix(b"\n").removesuffix(b"\r"), file, None))


def _skip_line(stream: BinaryIO) -> int:
    r"""Read up to and including the next b"\n" in pieces; return how many bytes came before it."""
    size = 0
    while piece := stream.readline(_PIECE_BYTES):
        size += len(piece)
        if piece.endswith(b"\n"):
            return size - 1
    return size
