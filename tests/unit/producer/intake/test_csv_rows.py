"""CSV and TSV, from bytes to rows."""

import csv
import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.intake.csv_rows import csv_lines
from producer.intake.lines import MAX_LINE_BYTES, Line
from producer.intake.refused import SourceError
from producer.intake.rows import Reject, parse_line
from producer.intake.tables import Table


def rows(data: bytes | str, delimiter: str = ",", table: Table | None = None) -> list[str]:
    """For every row `number prompt`, or `number !code`."""
    stream = io.BytesIO(data if isinstance(data, bytes) else data.encode())
    found = [parse_line(line, 0) for line in csv_lines(stream, delimiter, table or Table(), name="t", file="")]
    return [
        f"{row.line} !{row.fault.code}" if isinstance(row, Reject) else f"{row.line} {row.body['prompt']}"
        for row in found
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("prompt\n", []),
        ("prompt", []),
        ("prompt\na\nb", ["1 a", "2 b"]),
        ("prompt\r\na\r\nb\r\n", ["1 a", "2 b"]),
        ("\ufeffprompt\na\n", ["1 a"]),
        ('\ufeff"prompt"\na\n', ["1 a"]),
        ("x,prompt\n1,a\n", ["1 a"]),
        ('prompt\n"a,""b"""\n', ['1 a,"b"']),
        ('prompt\n"a\nb"\nc\n', ["1 a\nb", "2 c"]),
        ('prompt\n"a\r\nb"\r\nc\n', ["1 a\r\nb", "2 c"]),
        ("prompt\na\u2028b\u0085c\n", ["1 a\u2028b\u0085c"]),
        ("prompt\na\0b\n", ["1 a\0b"]),
        ("prompt\n\na\n\n\nb\n", ["2 a", "5 b"]),
        ("prompt,x\na\nb,1,2\nc,1\n", ["1 !ragged_row", "2 !ragged_row", "3 c"]),
        ("prompt,x\n,1\n", ["1 !empty_prompt"]),
        (b"prompt\na\xff\nb\n", ["1 !invalid_utf8", "2 b"]),
        (b"prompt,x\na,\xff\n", ["1 a"]),
        ("prompt\n{}\n", ["1 {}"]),
    ],
)
def test_which_rows_a_file_has(data, expected):
    assert rows(data) == expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("", None),
        ("\nprompt\na\n", "its first line must name the columns, and is empty"),
        (
            'prompt\nb\n"a\n',
            "row 2 (it ends on line 3) is not CSV: unexpected end of data; is a quote missing or too many?",
        ),
        ('prompt\n"a"b\n', "row 1 (it ends on line 2) is not CSV: ',' expected after '\"'"),
        ("prompt\na\rb\n", "row 1 (it ends on line 2) is not CSV: a carriage return stands outside quotes; put"),
        ("prompt\na\n".encode("utf-16"), "it is UTF-16; save it as CSV in UTF-8"),
        ("x;y\n1;2\n", 'it has "x;y"'),
        (b"prompt\n" + b"x" * (MAX_LINE_BYTES + 1), "a line is longer than 16 MiB; is it a CSV file?"),
        ('prompt\n"' + ("x" * 2**20 + "\n") * (MAX_LINE_BYTES // 2**20), "field larger than field limit"),
    ],
)
def test_files_that_are_refused(data, words):
    with pytest.raises(SourceError) as refused:
        rows(data)
    said = str(refused.value)
    assert said.startswith("t: ")
    assert "\n" not in said
    assert words is None or words in said


def test_a_row_that_is_wrong_says_how():
    stream = io.BytesIO(b"custom_id,prompt\na,b,c\n")
    (line,) = csv_lines(stream, ",", Table(), name="t", file="t.csv")
    assert isinstance(line, Line)
    row = parse_line(line, 0)
    assert (row.custom_id, row.file) == ("t.csv:1", "t.csv")
    assert row.fault.message == "the row has 3 fields, the header 2"


def test_a_long_field():
    assert rows(f"prompt\n{'x' * 300_000}\n") == [f"1 {'x' * 300_000}"]  # Python's own limit is 131,072


def test_tabs():
    assert rows('prompt\tx\na,b\t1\n"a\tb"\t1\n', "\t") == ["1 a,b", "2 a\tb"]


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    st.lists(st.tuples(texts, texts), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n"]), st.sampled_from(",\t")
)
def test_what_python_writes_comes_back(table, ending, delimiter):
    stream = io.StringIO(newline="")
    # Python's writer itself puts no quotes around a "\r".
    quoting = csv.QUOTE_ALL if any("\r" in text for row in table for text in row) else csv.QUOTE_MINIMAL
    writer = csv.writer(stream, delimiter=delimiter, lineterminator=ending, quoting=quoting)
    writer.writerow(("text", "other"))
    writer.writerows(table)
    found = csv_lines(io.BytesIO(stream.getvalue().encode()), delimiter, Table(prompt_column="text"), name="t", file="")
    assert [parse_line(line, 0).body["prompt"] for line in found] == [text for text, _ in table]


def test_memory_does_not_grow_with_the_file(tmp_path: Path):
    with (tmp_path / "a.csv").open("w") as file:
        file.write("prompt,x\n")
        file.writelines(f"{'x' * 500},{number}\n" for number in range(10_000))
    tracemalloc.start()
    try:
        with (tmp_path / "a.csv").open("rb") as stream:
            assert sum(1 for _ in csv_lines(stream, ",", Table(), name="t", file="")) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
