"""Lines of results into files of each format, and read back."""

import builtins
import gzip
import io
import json
from pathlib import PurePath
from typing import Any

import pyarrow.parquet as pq
import pytest
from backports import zstd

from producer.errors import Refused
from producer.record.models import Answer, Outcome, Row, RowFault
from producer.results import writers
from producer.results.formats import Format, format_of
from producer.results.shapes import COLUMNS, flat, split_lines
from producer.results.writers import writer

LINES = [
    Outcome.answered(
        Row(n, n + 1, f"é\u2028{n}", "/v1/completions", {}),
        Answer({"choices": [{"text": f"t{n}"}, {"text": "u"}][: 1 + n % 2], "usage": {"prompt_tokens": n}}, 1, 1),
    ).line
    for n in range(7)
] + [Outcome.failed_row(7, 8, None, RowFault("no", "why")).line]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def written(chosen: Format, name: str, *pages: bytes) -> bytes:
    stream = io.BytesIO()
    made = writer(chosen, stream, name)
    for page in pages:
        made.write(page)
    made.close()
    assert not stream.closed
    return stream.getvalue()


PAGES = (TEXT[: TEXT.index(b"\n") + 1], b"", TEXT[TEXT.index(b"\n") + 1 :])


def test_lines_are_written_as_they_are() -> None:
    assert written(Format.OPENAI, "out.jsonl", *PAGES) == TEXT


def test_flat_lines() -> None:
    found = written(Format.FLAT, "out.jsonl", *PAGES)
    assert [json.loads(line) for line in split_lines(found)] == [flat(line) for line in split_lines(TEXT)]


@pytest.mark.parametrize("chosen", [Format.OPENAI, Format.FLAT])
def test_compressed_lines(chosen: Format) -> None:
    plain = written(chosen, "out.jsonl", *PAGES)
    assert gzip.decompress(written(chosen, "out.jsonl.gz", *PAGES)) == plain
    assert zstd.decompress(written(chosen, "out.jsonl.ZST", *PAGES)) == plain
    assert written(chosen, "a.gz", TEXT) == written(chosen, "b.gz", TEXT), "no name, no time"


def test_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_GROUP_ROWS", 3)
    table = pq.ParquetFile(io.BytesIO(written(Format.PARQUET, "out.parquet", *PAGES)))
    assert [table.metadata.row_group(n).num_rows for n in range(table.num_row_groups)] == [3, 3, 2]
    assert table.schema_arrow.names == [*COLUMNS, "response"]
    for row, line in zip(table.read().to_pylist(), split_lines(TEXT), strict=True):
        response = row.pop("response")
        assert row == flat(line)
        assert (response and json.loads(response)) == json.loads(line)["response"]


def test_a_row_group_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_GROUP_BYTES", len(LINES[0].encode()) + 1)
    table = pq.ParquetFile(io.BytesIO(written(Format.PARQUET, "out.parquet", TEXT)))
    assert max(table.metadata.row_group(n).num_rows for n in range(table.num_row_groups)) == 2


def test_a_table_without_rows_has_its_columns() -> None:
    table = pq.read_table(io.BytesIO(written(Format.PARQUET, "out.parquet")))
    assert (table.num_rows, table.column_names) == (0, [*COLUMNS, "response"])


def test_without_pyarrow_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def lacking(name: str, *more: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(
        Refused, match=r"out.parquet: Parquet needs pyarrow: `pip install 'minedraft-worker\[tables\]'`"
    ):
        writer(Format.PARQUET, io.BytesIO(), "out.parquet")


def test_a_table_is_compressed_inside() -> None:
    with pytest.raises(Refused, match="compressed inside"):
        writer(Format.PARQUET, io.BytesIO(), "out.parquet.gz")


def test_the_format_that_a_name_asks_for() -> None:
    names = ("a.parquet", "a.PARQUET", "a.jsonl", "a.jsonl.gz", "parquet", "a", "a.parquet.gz")
    tables = [name for name in names if format_of(PurePath(name)) is Format.PARQUET]
    assert tables == ["a.parquet", "a.PARQUET", "a.parquet.gz"], "and the last is refused by the writer"
