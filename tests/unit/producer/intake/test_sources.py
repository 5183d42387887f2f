"""Which files a user means, and that each is read as what it is."""

import gzip
import io
import os
import sys
from pathlib import Path
from threading import Thread

import pytest
from backports import zstd

from producer.intake.lines import Line
from producer.intake.sources import SourceError, Table, hint, open_source

ROW = b'{"prompt":"x"}'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(*names: str) -> None:
    """Files of one line each, which holds the file's name."""
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(f"{name}\n")


def read(*files: str) -> list[str]:
    """The lines' texts."""
    return [line.data.decode() for line in open_source(files).lines() if isinstance(line, Line)]


def refusal(*files: str, table: Table | None = None) -> str:
    with pytest.raises(SourceError) as refused:
        open_source(files, table=table)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def stdin(monkeypatch: pytest.MonkeyPatch, stream: io.BufferedIOBase) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))


class ByteByByte(io.RawIOBase):
    """A pipe whose writer is slower than its reader."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        piece, self.data = self.data[:1], self.data[1:]
        memoryview(buffer)[: len(piece)] = piece
        return len(piece)


class TestWhichFiles:
    def test_one_file_may_be_read_again(self) -> None:
        made("a")
        source = open_source(["a"])
        assert (source.name, source.reopens) == ("a", True)
        assert list(source.lines()) == list(source.lines()) == [Line(1, b"a")]

    def test_several_keep_their_order_and_number_their_own_lines(self) -> None:
        made("b", "a", "c")
        Path("a").write_bytes(b"\n1\n2")
        source = open_source(["b", "a", "c"])
        assert source.name == "b and 2 more"
        assert list(source.lines()) == [Line(1, b"b", "b"), Line(2, b"1", "a"), Line(3, b"2", "a"), Line(1, b"c", "c")]

    def test_a_byte_order_mark_of_every_file_goes(self) -> None:
        for name in ("a", "b"):
            Path(name).write_bytes(b"\xef\xbb\xbf" + ROW)
        assert read("a", "b") == [ROW.decode()] * 2

    def test_patterns(self) -> None:
        made("d/2", "d/10", "d/.hidden", "d/e/3", "d/x")
        assert read("d/[0-9]*") == ["d/10", "d/2"]
        assert read("d/**/[0-9]*") == ["d/10", "d/2", "d/e/3"]
        assert read(f"{Path.cwd()}/d/1*") == ["d/10"]
        assert open_source(["d/[0-9]*"]).name == "[0-9]*"

    def test_a_name_that_is_there_is_no_pattern(self) -> None:
        made("a[1].jsonl", "a1.jsonl", "*")
        assert read("a[1].jsonl") == ["a[1].jsonl"]
        assert read("*") == ["*"]

    def test_rows_call_their_file_by_the_way_from_the_common_folder(self) -> None:
        made("d/a/x", "d/b/x", "d/b/y")
        for files in (["d/a/x", "d/b/x"], [f"{Path.cwd()}/d/a/x", "./d/b/../b/x"]):
            assert [line.file for line in open_source(files).lines()] == ["a/x", "b/x"]
        assert [line.file for line in open_source(["d/b/*"]).lines()] == ["x", "y"]

    @pytest.mark.parametrize("odd", ["a\x1b[31m", "a\udcff", "a\n", "d/" * 200 + "a"])
    def test_a_file_whose_name_no_row_can_have_is_submitted_alone(self, odd: str) -> None:
        made("b")
        Path(odd).parent.mkdir(parents=True, exist_ok=True)
        Path(odd).write_bytes(ROW)
        assert [line.file for line in open_source([odd]).lines()] == [""]
        with pytest.raises(SourceError, match="rename it, or submit it alone"):
            open_source(["b", odd])

    def test_refused(self) -> None:
        made("a", "d/b")
        Path("link").symlink_to("a")
        Path("e").mkdir()
        assert refusal() == "no file is given; - is standard input"
        assert refusal("a", "nosuch") == "nosuch: there is no such file"
        assert refusal("a", "no*such") == "no*such: no file has a name like this"
        assert refusal("[e]") == "[e]: no file has a name like this"
        assert refusal("d") == "d: it is a directory; name its files, as in 'd/*.jsonl'"
        assert refusal(".") == ".: it is a directory; name its files, as in '*.jsonl'"
        assert refusal("a", "a") == "a: it is given twice"
        assert refusal("a", "./a") == "./a: it is given twice, once as a"
        assert refusal("a", "link") == "link: it is given twice, once as a"
        assert refusal("d/b", "d/*") == "d/b: it is given twice"
        assert refusal("-", "a", "-") == "-: it is given twice"

    def test_a_link_to_nowhere_and_a_locked_file_name_themselves(self) -> None:
        Path("link").symlink_to("nosuch")
        with pytest.raises(OSError, match="link"):
            open_source(["link"])


class TestStreams:
    @pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
    def test_standard_input(self, monkeypatch: pytest.MonkeyPatch, pack) -> None:
        stdin(monkeypatch, io.BytesIO(pack(ROW + b"\n\n" + ROW)))
        source = open_source(["-"])
        assert (source.name, source.reopens) == ("stdin", False)
        assert list(source.lines()) == [Line(1, ROW), Line(3, ROW)]

    def test_standard_input_that_is_cut_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stdin(monkeypatch, io.BytesIO(gzip.compress(ROW, mtime=0)[:-1]))
        with pytest.raises(SourceError, match=r"^stdin: its gzip stream is cut off"):
            list(open_source(["-"]).lines())

    def test_a_pipe_with_parquet_cannot_seek(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stdin(monkeypatch, io.BufferedReader(ByteByByte(b"PAR1....PAR1")))
        with pytest.raises(SourceError, match=r"^stdin: .* save it to one and name it$"):
            list(open_source(["-"]).lines())

    def test_standard_input_beside_files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made("a")
        stdin(monkeypatch, io.BytesIO(ROW))
        source = open_source(["a", "-"])
        assert not source.reopens
        assert list(source.lines()) == [Line(1, b"a", "a"), Line(1, ROW, "stdin")]

    def test_a_pipe_with_a_name(self) -> None:
        os.mkfifo("pipe")
        source = open_source(["pipe"])
        assert not source.reopens
        Thread(target=lambda: Path("pipe").write_bytes(gzip.compress(ROW, mtime=0)), daemon=True).start()
        assert list(source.lines()) == [Line(1, ROW)]

    def test_lines_arrive_while_the_writer_is_still_writing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "wb", buffering=0) as writer:
            stdin(monkeypatch, reader)
            lines = open_source(["-"]).lines()
            writer.write(b"{}\n")
            assert next(lines) == Line(1, b"{}")
            writer.write(b"second\n")
            assert next(lines) == Line(2, b"second")

    @pytest.mark.parametrize("data", [gzip.compress(ROW, mtime=0), zstd.compress(ROW), ROW + b"\n" + ROW, b"\n", b""])
    def test_a_writer_that_writes_byte_by_byte(self, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
        stdin(monkeypatch, io.BufferedReader(ByteByByte(data)))
        got = [line.data for line in open_source(["-"]).lines()]
        assert got == {b"": [], b"\n": [], ROW + b"\n" + ROW: [ROW, ROW]}.get(data, [ROW])


class TestFormats:
    @pytest.mark.parametrize(
        ("name", "data", "words"),
        [
            ("a.xlsx", b"PK\x03\x04...", "it is an Excel workbook; save it as CSV in UTF-8"),
            ("a.bz2", b"BZh91AY&SY", "it is packed with bzip2; unpack it, or pack it with gzip or zstd"),
            ("a.xz", b"\xfd7zXZ\0\0\0", "it is packed with xz"),
            ("a.lz4", b"\x04\x22M\x18\0\0\0\0", "it is packed with lz4"),
            ("a.7z", b"7z\xbc\xaf\x27\x1c\0\0", "it is a 7z archive"),
            ("a.tar.gz", gzip.compress(b"a".ljust(257, b"\0") + b"ustar", mtime=0), "it is a tar archive"),
            ("a.feather", b"FEA1\0\0\0\0", "it is a Feather V1 file; write it as Parquet or Feather V2"),
            ("a.db", b"SQLite format 3\0", "it is an SQLite database"),
            ("a.avro", b"Obj\x01....", "it is an Avro file"),
            ("a.parquet", ROW, "by its name it is parquet, by its content not"),
            ("a.parquet", b"PAR1....", "it cannot be read; copy it again or write it anew"),
            (
                "a.parquet.gz",
                gzip.compress(b"PAR1....", mtime=0),
                "are read from a plain file: save it to one and name it",
            ),
            ("a.arrow", b"ARROW1\0\0....", "it cannot be read"),
            ("a.arrow", b"\xff\xff\xff\xff\x10\0\0\0..", "it cannot be read"),
        ],
    )
    def test_what_is_no_source_is_refused_before_anything_is_read(self, name: str, data: bytes, words: str) -> None:
        made("first.jsonl")
        Path(name).write_bytes(data)
        said = refusal("first.jsonl", name)
        assert said.startswith(f"{name}: ")
        assert words in said

    def test_an_empty_file_is_one_without_rows(self) -> None:
        for name in ("a.jsonl", "a.parquet"):
            Path(name).touch()
            assert read(name) == []

    def test_columns_and_templates_are_for_tables(self) -> None:
        made("a.jsonl", "b.csv")
        Path("b.csv").write_text("text\nhi\n")
        table = Table(prompt_column="text")
        assert refusal("b.csv", "a.jsonl", table=table).startswith("a.jsonl: it is read as JSON lines: columns and")
        assert [line.data for line in open_source(["b.csv"], table=table).lines()] == [b'{"prompt":"hi"}']

    @pytest.mark.parametrize(
        ("name", "data"),
        [
            ("a.csv", b"prompt,x\nhi,x\n"),
            ("a.CSV", b"prompt,x\nhi,x\n"),
            ("a.tsv", b"prompt\tx\nhi\tx\n"),
            ("a.csv.gz", gzip.compress(b"prompt,x\nhi,x\n", mtime=0)),
            ("a.CSV.gz", gzip.compress(b"prompt,x\nhi,x\n", mtime=0)),
            ("a.tsv.zst", zstd.compress(b"prompt\tx\nhi\tx\n")),
        ],
    )
    def test_csv_is_known_by_its_suffix(self, name: str, data: bytes) -> None:
        Path(name).write_bytes(data)
        assert read(name) == ['{"prompt":"hi"}']


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\xff\xfe{\0}\0", "UTF-16"),
        (b"\xfe\xff\0{", "UTF-16"),
        (b'[{"prompt":"x"}]', "one JSON array"),
        (b"{", "one object over several lines"),
        (b"{ \r", "one object over several lines"),
        (b"hello", ""),
        (b"", ""),
    ],
)
def test_what_a_file_without_a_row_seems_to_be(line: bytes, words: str) -> None:
    assert (words in hint(line)) if words else hint(line) == ""
