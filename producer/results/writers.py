"""Lines of results -> bytes of a file, in one of three formats."""

import gzip
from collections.abc import Callable
from typing import IO, Any, Protocol, cast

from producer.errors import Refused
from producer.intake.compressed import zstd_module
from producer.results.formats import Format, packing
from producer.results.outputs import Stream
from producer.results.shapes import COLUMNS, compact, flat, split_lines, table_row

#: A row group of a Parquet file ends with so many rows, or with so many bytes of their lines.
_GROUP_ROWS = 4_000
_GROUP_BYTES = 8 << 20


class Writer(Protocol):
    """Takes lines of OpenAI's batch output shape and writes them to the stream that it was made for."""

    def write(self, lines: bytes) -> None:
        """Write some lines, each with its newline."""

    def close(self) -> None:
        """Write what is held back; the stream stays open."""


def writer(chosen: Format, stream: Stream, name: str) -> Writer:
    """A writer of that format; where `name` ends in .gz or .zst its lines are compressed so.

    Raises:
        Refused: Parquet cannot be written: pyarrow is not installed, or the name asks for another compression.
    """
    pack = {".gz": _gzip, ".zst": _zstd}.get(packing(name))
    if chosen is Format.PARQUET:
        if pack:
            raise Refused(f"{name}: Parquet is compressed inside; call the file .parquet")
        return _Parquet(stream, name)
    turned = _flat_lines if chosen is Format.FLAT else None
    if pack is None:
        return _Lines(stream.write, _nothing, turned)
    packed = pack(stream)
    return _Lines(packed.write, packed.close, turned)


def _flat_lines(lines: bytes) -> bytes:
    return b"".join(compact(flat(line)) + b"\n" for line in split_lines(lines))


def _nothing() -> None:
    """The end of a stream of lines needs no words."""


def _gzip(stream: Stream) -> gzip.GzipFile:
    return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=cast("IO[bytes]", stream), mtime=0)


def _zstd(stream: Stream) -> Any:
    return zstd_module().ZstdFile(stream, "w")


class _Lines:
    """Lines of JSON: as they are, or each turned into another."""

    def __init__(
        self, put: Callable[[bytes], Any], end: Callable[[], Any], turned: Callable[[bytes], bytes] | None
    ) -> None:
        self._put = put
        self._turned = turned
        self.close = end

    def write(self, lines: bytes) -> None:
        self._put(self._turned(lines) if self._turned else lines)


class _Parquet:
    """A table in row groups of bounded size; nothing but the group at work is in memory."""

    def __init__(self, stream: Stream, name: str) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra, and heavy
            from pyarrow import parquet  # noqa: PLC0415
        except ImportError:
            raise Refused(
                f"{name}: Parquet needs pyarrow: `pip install 'minedraft-worker[tables]'`, or write .jsonl"
            ) from None
        self._pa = pa
        text, number = pa.string(), pa.int64()
        kinds = {"line": number, "prompt_tokens": number, "completion_tokens": number, "texts": pa.list_(text)}
        self._schema = pa.schema([(name, kinds.get(name, text)) for name in (*COLUMNS, "response")])
        self._table = parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def write(self, lines: bytes) -> None:
        for line in split_lines(lines):
            self._rows.append(table_row(line))
            self._bytes += len(line)
            if len(self._rows) == _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
                self._end_group()

    def close(self) -> None:
        self._end_group()
        self._table.close()

    def _end_group(self) -> None:
        if self._rows:
            self._table.write_batch(self._pa.RecordBatch.from_pylist(self._rows, schema=self._schema))
            self._rows, self._bytes = [], 0
