"""Where the rows of a submission come from: files, globs and standard input, whatever their format, as lines."""

import glob
import io
import os
import re
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO, Protocol

from producer.intake.compressed import decompressed, is_packed
from producer.intake.lines import Line, TooLong, numbered_lines
from producer.intake.refused import SourceError
from producer.intake.tables import Table

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Source", "SourceError", "Table", "hint", "open_source"]

_STDIN = "-"
#: Bytes that tell most formats apart. No more are waited for: whoever types rows wants them read at once.
_MARK_BYTES = 8
_HEAD_BYTES = 512
_MAX_FILE_CHARS = 400
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PACKED = (".gz", ".zst", ".zstd")
_ARROW_SUFFIXES = (".parquet", ".arrow", ".feather")
# A message of Arrow's stream format: a mark, then the size of what follows, less than 16 MiB here.
_ARROW_STREAM = re.compile(rb"\xff{4}.{3}\0", re.DOTALL)

#: How files begin that are no source of rows: what they are, and what to do.
_MISTAKEN = tuple(
    (re.compile(start, re.DOTALL), f"{what}; {fix}")
    for start, what, fix in (
        (rb"PK\x03\x04", "a zip archive", "unpack it and name the files in it"),
        (rb"BZh[1-9]1AY&SY", "packed with bzip2", "unpack it, or pack it with gzip or zstd"),
        (rb"\xfd7zXZ\0", "packed with xz", "unpack it, or pack it with gzip or zstd"),
        (rb"\x04\x22M\x18", "packed with lz4", "unpack it, or pack it with gzip or zstd"),
        (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it and name the files in it"),
        (rb".{257}ustar", "a tar archive", "unpack it and name the files in it"),
        (rb"FEA1", "a Feather V1 file", "write it as Parquet or Feather V2"),
        (rb"SQLite format 3\0", "an SQLite database", "write its rows to a CSV file"),
        (rb"Obj\x01", "an Avro file", "write it as Parquet"),
        (rb"version https://git-lfs", "a Git LFS pointer", "fetch the file itself with `git lfs pull`"),
    )
)
#: How the first line of a file begins that was meant as something else. Rows may still follow it.
_HINTS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"[": "one JSON array"}


class Source(Protocol):
    """Rows to submit, as lines."""

    @property
    def name(self) -> str:
        """What people call it: a file's name without its folder, say."""

    @property
    def reopens(self) -> bool:
        """True where `lines` can be called again; not for standard input."""

    def lines(self) -> Iterator[Line | TooLong]:
        """All lines, from the start.

        Raises:
            SourceError: it is no source of rows, or damaged: what was read of it must not be used.
            OSError: it cannot be read.
        """


def open_source(files: Sequence[str], *, table: Table | None = None) -> Source:
    """The rows of all `files`, in this order: JSON lines, CSV, TSV, Parquet or Arrow, plain or in gzip or zstd.

    A file that is there is that file; another name with `*`, `?` or `[` is a pattern (`**` crosses folders) and means
    its files in the order of their names. "-" is standard input. Formats are known by content, CSV and TSV by suffix.
    The first row of every file is looked at now, so that a wrong file is found before the others are read.

    Args:
        files: at least one.
        table: how rows of tables become lines; it cannot be given for JSON lines.

    Raises:
        SourceError: a file is missing, given twice, or no source of rows.
        OSError: one cannot be read.
    """
    source = _Files(files, [path for name in files for path in _expanded(name)], table)
    source.check()
    return source


def hint(first_line: bytes) -> str:
    """What a file that has not one row seems to be, to be put behind a message; "" where nobody knows."""
    for start, what in _HINTS.items():
        if first_line.startswith(start):
            return f" (this looks like {what}; JSON lines in UTF-8 are expected)"
    if first_line.strip() == b"{":
        return " (this looks like one object over several lines; one a line is expected)"
    return ""


class _Files:
    """A `Source` of files; standard input counts as one."""

    def __init__(self, asked: Sequence[str], paths: Sequence[str], table: Table | None) -> None:
        if not paths:
            raise SourceError("no file is given; - is standard input")
        _refuse_repeated(paths)
        self._paths, self._table = paths, table
        self._labels = _labels(paths)
        first = "stdin" if asked[0] == _STDIN else PurePath(asked[0]).name
        self.name = first if len(asked) == 1 else f"{first} and {len(asked) - 1} more"
        self.reopens = all(map(_is_regular, paths))

    def check(self) -> None:
        """Look at the first row of every file that can be read again."""
        for path in filter(_is_regular, self._paths):
            with closing(self._lines_of(path, "")) as lines:
                next(lines, None)

    def lines(self) -> Iterator[Line | TooLong]:
        for path, label in zip(self._paths, self._labels, strict=True):
            yield from self._lines_of(path, label)

    def _lines_of(self, path: str, label: str) -> Generator[Line | TooLong, None, None]:
        name = "stdin" if path == _STDIN else path
        with _opened(path) as stream:
            yield from _lines(stream, name, label, self._table)


def _lines(stream: BinaryIO, name: str, file: str, table: Table | None) -> Iterator[Line | TooLong]:
    """The lines of a stream of any format."""
    head, stream = _begun(stream)
    suffix = PurePath(name).suffix.lower()
    unpacked = decompressed(stream, head, name)
    if unpacked is not None:
        if suffix in _PACKED:
            suffix = PurePath(name).with_suffix("").suffix.lower()
        head, stream = _begun(unpacked)
        if is_packed(head):
            raise SourceError(f"{name}: it is packed twice; unpack it once")
    _refuse_mistaken(head, suffix, name)
    if head.startswith((b"PAR1", b"ARROW1")):
        if not stream.seekable():
            raise SourceError(f"{name}: Parquet and Arrow files are read from a plain file: save it to one and name it")
        return _table_lines(stream, head, table or Table(), name, file)
    if _ARROW_STREAM.match(head):
        return _table_lines(stream, head, table or Table(), name, file)
    if suffix in _ARROW_SUFFIXES and head:
        raise SourceError(f"{name}: by its name it is {suffix[1:]}, by its content not; download or write it again")
    if suffix in _DELIMITERS:
        from producer.intake.csv_rows import csv_lines  # noqa: PLC0415 - few files need it

        return csv_lines(stream, _DELIMITERS[suffix], table or Table(), name=name, file=file)
    if table is not None:
        kinds = "Parquet and Arrow files, and files named .csv or .tsv"
        raise SourceError(f"{name}: it is read as JSON lines: columns and templates are for {kinds}")
    return numbered_lines(stream, file=file)


def _table_lines(stream: BinaryIO, head: bytes, table: Table, name: str, file: str) -> Iterator[Line | TooLong]:
    from producer.intake.arrow_rows import arrow_lines, parquet_lines  # noqa: PLC0415 - few files need it

    if head.startswith(b"PAR1"):
        return parquet_lines(stream, table, name=name, file=file)
    return arrow_lines(stream, table, is_file=head.startswith(b"ARROW1"), name=name, file=file)


def _refuse_mistaken(head: bytes, suffix: str, name: str) -> None:
    for start, what in _MISTAKEN:
        if start.match(head):
            excel = "an Excel workbook; save it as CSV in UTF-8" if suffix == ".xlsx" else None
            raise SourceError(f"{name}: it is {excel or what}")


def _begun(stream: BinaryIO) -> tuple[bytes, BinaryIO]:
    """The first bytes of a stream, and the stream with these bytes in it."""
    assert isinstance(stream, io.BufferedIOBase)
    head = b""
    while len(head) < _MARK_BYTES and b"\n" not in head and (piece := stream.read1(_HEAD_BYTES)):
        head += piece
    if stream.seekable():
        stream.seek(-len(head), os.SEEK_CUR)
        return head, stream
    return head, io.BufferedReader(_Rejoined(head, stream), 2**17)


class _Rejoined(io.RawIOBase):
    """A stream with the bytes before it that were read already."""

    def __init__(self, head: bytes, rest: io.BufferedIOBase) -> None:
        super().__init__()
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        if not self._head:
            return self._rest.readinto1(buffer)
        view = memoryview(buffer)
        piece, self._head = self._head[: len(view)], self._head[len(view) :]
        view[: len(piece)] = piece
        return len(piece)


def _expanded(name: str) -> list[str]:
    """The files that a user's word means."""
    if name == _STDIN or os.path.lexists(name):
        if name != _STDIN and Path(name).is_dir():
            raise SourceError(f"{name}: it is a directory; name its files, as in '{PurePath(name) / '*.jsonl'}'")
        return [name]
    if not any(mark in name for mark in "*?["):
        raise SourceError(f"{name}: there is no such file")
    # Path.glob takes no absolute patterns, and does not keep "./".
    found = sorted(path for path in glob.glob(name, recursive=True) if not Path(path).is_dir())  # noqa: PTH207
    if not found:
        raise SourceError(f"{name}: no file has a name like this")
    return found


def _refuse_repeated(paths: Sequence[str]) -> None:
    seen: dict[tuple[int, int] | str, str] = {}
    for path in paths:
        if path == _STDIN:
            identity: tuple[int, int] | str = path
        else:
            found = Path(path).stat()
            identity = found.st_dev, found.st_ino
        if identity in seen:
            other = "" if seen[identity] == path else f", once as {seen[identity]}"
            raise SourceError(f"{path}: it is given twice{other}")
        seen[identity] = path


def _labels(paths: Sequence[str]) -> list[str]:
    """What rows call their files: the way there from the folder that holds all of them; "" for a single one."""
    if len(paths) == 1:
        return [""]
    absolute = [Path(path).absolute() for path in paths if path != _STDIN]
    folder = os.path.commonpath([path.parent for path in absolute])
    labels = ["stdin" if path == _STDIN else os.path.relpath(path, folder) for path in paths]
    for path, label in zip(paths, labels, strict=True):
        if not label.isprintable() or len(label) > _MAX_FILE_CHARS:
            raise SourceError(f"{path}: its name cannot be part of the names of rows; rename it, or submit it alone")
    return labels


def _is_regular(path: str) -> bool:
    return path != _STDIN and stat.S_ISREG(Path(path).stat().st_mode)


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if path == _STDIN else Path(path).open("rb")
