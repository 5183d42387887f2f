"""Parquet and Arrow: the same rows from every format, and what their types become."""

import datetime
import decimal
import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from producer.intake.rows import Reject, parse_line
from producer.intake.sources import SourceError, open_source
from producer.intake.tables import Table
from producer.record.models import Row


def write_parquet(table: pa.Table, path: Path) -> None:
    parquet.write_table(table, path, row_group_size=3)


def write_feather(table: pa.Table, path: Path) -> None:
    feather.write_feather(table, path, chunksize=2)


def write_one_batch(table: pa.Table, path: Path) -> None:
    feather.write_feather(table, path)


def write_stream(table: pa.Table, path: Path) -> None:
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_packed_stream(table: pa.Table, path: Path) -> None:
    write_stream(table, path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


WRITERS = [write_parquet, write_feather, write_one_batch, write_stream, write_packed_stream]


def rows(path: Path, **table: Any) -> list[Row | Reject]:
    lines = open_source([str(path)], table=Table(**table) if table else None).lines()
    return [parse_line(line, index) for index, line in enumerate(lines)]


@pytest.mark.parametrize("write", WRITERS)
def test_every_format_gives_the_same_rows(tmp_path: Path, write) -> None:
    many = 1200  # more than are read at a time
    table = pa.table({
        "custom_id": [f"id-{number}" for number in range(many)],
        "image": [bytes(10)] * many,
        "prompt": [None if number == 7 else f"é\u2028{number}" for number in range(many)],
    })  # fmt: skip
    write(table, tmp_path / "t")
    found = rows(tmp_path / "t")
    assert [row.line for row in found] == list(range(1, many + 1))
    assert [row.custom_id for row in found] == table["custom_id"].to_pylist()
    assert [row.line for row in found if isinstance(row, Reject)] == [8]
    assert [row.body["prompt"] for row in found if isinstance(row, Row)] == [
        text for text in table["prompt"].to_pylist() if text
    ]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("count", [0, 1])
def test_a_table_of_few_rows(tmp_path: Path, write, count: int) -> None:
    write(pa.table({"prompt": pa.array(["x"] * count, pa.string())}), tmp_path / "t")
    assert len(rows(tmp_path / "t")) == count


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_kinds_of_text(tmp_path: Path, kind: pa.DataType) -> None:
    write_stream(pa.table({"prompt": pa.array(["x", None], pa.string()).cast(kind)}), tmp_path / "t")
    assert [getattr(row, "body", None) for row in rows(tmp_path / "t")] == [{"prompt": "x"}, None]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (3, pa.int8(), "3"),
        (2**64 - 1, pa.uint64(), str(2**64 - 1)),
        (0.5, pa.float32(), "0.5"),
        (0.5, pa.float16(), "0.5"),
        (True, pa.bool_(), "true"),
        (decimal.Decimal("1.50"), pa.decimal128(5, 2), "1.50"),
        (datetime.date(2024, 2, 29), pa.date32(), "2024-02-29"),
        (1, pa.timestamp("ns"), "1970-01-01 00:00:00.000000001"),
        (0, pa.timestamp("s", "UTC"), "1970-01-01 00:00:00Z"),
        (1, pa.time32("s"), "00:00:01"),
    ],
    ids=str,
)
def test_how_a_template_spells_values(tmp_path: Path, value: object, kind: pa.DataType, text: str) -> None:
    write_stream(pa.table({"x": pa.array([value], kind)}), tmp_path / "t")
    (row,) = rows(tmp_path / "t", template="<{x}>")
    assert row.body == {"prompt": f"<{text}>"}


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.list_(pa.string()),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.string()),
        pa.duration("s"),
        pa.list_(pa.struct([("role", pa.string()), ("image", pa.binary())])),
        pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())])),
    ],
    ids=str,
)
def test_types_that_no_prompt_can_have_are_named(tmp_path: Path, kind: pa.DataType) -> None:
    write_stream(pa.table({"x": pa.array([None], kind)}), tmp_path / "t")
    for table in ({"prompt_column": "x"}, {"template": "{x}"}, {"messages_column": "x"}):
        with pytest.raises(SourceError) as refused:
            rows(tmp_path / "t", **table)
        assert f'column "x" ({kind}) cannot be used' in str(refused.value)


@pytest.mark.parametrize("write", WRITERS)
def test_messages_and_token_ids(tmp_path: Path, write) -> None:
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string())]))
    talk = [{"role": "system", "content": "Be brief.", "name": None}, {"role": "user", "content": "Hi", "name": "Bo"}]
    write(pa.table({"messages": pa.array([talk], kind), "ids": [[1, 2]]}), tmp_path / "t")
    (row,) = rows(tmp_path / "t")
    assert row.body == {"messages": [{"role": "system", "content": "Be brief."}, talk[1]]}
    (row,) = rows(tmp_path / "t", prompt_column="ids")
    assert row.body == {"prompt": [1, 2]}


def test_a_name_with_a_dot_is_a_name(tmp_path: Path) -> None:
    write_parquet(pa.table({"a": [{"b": "no"}], "a.b": ["yes"]}), tmp_path / "t")
    (row,) = rows(tmp_path / "t", prompt_column="a.b")
    assert row.body == {"prompt": "yes"}


def test_text_that_is_not_utf_8_is_a_row_error(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff", None], pa.binary()).cast(pa.string(), safe=False)
    for write in WRITERS:
        write(pa.table({"prompt": texts, "custom_id": ["x", "y", "z"]}), tmp_path / "t")
        found = rows(tmp_path / "t")
        assert [row.custom_id for row in found] == ["x", "y", "z"]
        assert [row.fault.code for row in found if isinstance(row, Reject)] == ["invalid_utf8", "missing_prompt"]


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, write) -> None:
    table = pa.table({"prompt": [f"{number} {'x' * 100}" for number in range(20)]})
    write(table, tmp_path / "t")
    data = (tmp_path / "t").read_bytes()
    for size in (len(data) - 20, len(data) // 2, 20):
        (tmp_path / "t").write_bytes(data[:size])
        with pytest.raises(SourceError) as refused:
            rows(tmp_path / "t")
        assert str(refused.value).startswith(f"{tmp_path}/t: ")
        assert "\n" not in str(refused.value)


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(pa.table({"prompt": ["x"]}), tmp_path / "t")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SourceError, match=r"need pyarrow: pip install 'minedraft-worker\[tables\]'"):
        rows(tmp_path / "t")


def test_pyarrow_is_loaded_for_such_files_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt\nx\n")
    code = (
        f"import sys; from producer.intake.sources import open_source; list(open_source([{str(tmp_path / 'a.csv')!r}])"
        ".lines()); sys.exit('pyarrow' in sys.modules or 'backports.zstd' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
