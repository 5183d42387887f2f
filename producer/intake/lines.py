"""A file as numbered lines, read as a stream: memory stays bounded whatever the file holds."""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

#: The longest line that is read into memory, in bytes without its newline. A row of 128k tokens has about 1 MB.
MAX_LINE_BYTES = 16 * 2**20

_BOM = b"\xef\xbb\xbf"
_PIECE_BYTES = 2**16


class Line(NamedTuple):
    """A non-blank line: its number in the file, from 1, and its bytes without the line ending."""

    number: int
    data: bytes


class TooLong(NamedTuple):
    """A line that was skipped because it has more than `limit` bytes: its number in the file and its size."""

    number: int
    size: int
    limit: int


def numbered_lines(stream: BinaryIO, *, limit: int = MAX_LINE_BYTES) -> Iterator[Line | TooLong]:
    r"""Yield the non-blank lines of a buffered binary stream in order.

    Only b"\n" ends a line (JSON strings may hold U+2028, U+0085 and the like); a "\r" before it goes too.
    Blank lines (ASCII whitespace alone) are skipped but counted. A byte order mark at the very start is
    dropped. The last line needs no newline. At most about `limit` bytes are held at any time.

    Raises:
        OSError: the stream cannot be read.
    """
    number = 0
    while data := stream.readline(limit + 1):
        number += 1
        if len(data) > limit and not data.endswith(b"\n"):
            yield TooLong(number, len(data) + _skip_line(stream), limit)
            continue
        if number == 1:
            data = data.removeprefix(_BOM)
        if data and not data.isspace():
            yield Line(number, data.removesuffix(b"\n").removesuffix(b"\r"))


def _skip_line(stream: BinaryIO) -> int:
    r"""Read up to and including the next b"\n" in pieces; return how many bytes came before it."""
    size = 0
    while piece := stream.readline(_PIECE_BYTES):
        size += len(piece)
        if piece.endswith(b"\n"):
            return size - 1
    return size
