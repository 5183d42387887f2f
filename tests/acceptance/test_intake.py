"""`producer submit` of files in every format: as many results as rows, whatever the files hold."""

import gzip
import json
from typing import Any

import pyarrow as pa
import pytest
from backports import zstd
from pyarrow import parquet
from shell import Shell


def by_id(results: list[dict[str, Any]]) -> dict[str, str]:
    """The text of each answer, or the code of each error, by `custom_id`."""
    assert len({line["custom_id"] for line in results}) == len(results)
    return {line["custom_id"]: line["error"]["code"] if line["error"] else "answered" for line in results}


def test_several_files_are_one_job_and_every_error_says_which(shell: Shell) -> None:
    folder = shell.folder / "data"
    folder.mkdir(exist_ok=True)
    (folder / "part-1.jsonl").write_text('{"prompt":"a"}\n\n{"prompt":""}\n')
    (folder / "part-2.jsonl.gz").write_bytes(gzip.compress(b'{"prompt":"b","custom_id":"mine"}\n{broken\n'))
    (folder / "part-3.jsonl.zst").write_bytes(zstd.compress(b"\xef\xbb\xbf" + b'{"prompt":"c"}\r\n'))
    (folder / "part-4.csv").write_text('text,n\n"d\nd",1\ne\n', encoding="utf-8-sig")
    parquet.write_table(pa.table({"prompt": ["f", None]}), folder / "part-5.parquet")
    shell.fake()
    plain = shell.submit("data/part-[1235]*")
    assert (plain["rows"], plain["invalid"]) == (7, 3)
    shell.producer("watch", plain["job_id"], code=1)
    results = shell.results(plain["job_id"])
    assert [line["custom_id"] for line in results] == [
        *("part-1.jsonl:1", "part-1.jsonl:3", "mine", None, "part-3.jsonl.zst:1"),
        *("part-5.parquet:1", "part-5.parquet:2"),
    ]
    errors = [line["error"] for line in results if line["error"]]
    assert [(error["file"], error["line"], error["code"]) for error in errors] == [
        ("part-1.jsonl", 3, "empty_prompt"),
        ("part-2.jsonl.gz", 2, "invalid_json"),
        ("part-5.parquet", 2, "missing_prompt"),
    ]
    table = shell.submit("data/part-4.csv", "--template", "Say: {text}", "--chat")
    shell.producer("watch", table["job_id"], code=1)
    assert by_id(shell.results(table["job_id"])) == {"row-1": "answered", "row-2": "ragged_row"}


def test_the_same_rows_packed_or_not_are_the_same_job(shell: Shell) -> None:
    rows = b"".join(json.dumps({"prompt": f"{number}"}).encode() + b"\n" for number in range(100))
    (shell.folder / "rows.jsonl").write_bytes(rows)
    (shell.folder / "rows.gz").write_bytes(gzip.compress(rows))
    first = shell.submit("rows.jsonl")
    for again in (shell.submit("rows.gz"), shell.submit("-", text=zstd.compress(rows))):
        assert (again["job_id"], again["resumed"]) == (first["job_id"], True)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("cut.gz: its gzip stream is cut off; copy the file again", ("rows.jsonl", "cut.gz")),
        ("late.gz: its gzip stream is cut off; copy the file again", ("late.gz", "rows.jsonl")),
        ("rows.jsonl: it is given twice, once as ./rows.jsonl", ("./rows.jsonl", "rows.jsonl")),
        ("no*.jsonl: no file has a name like this", ("no*.jsonl",)),
        ("rows.jsonl: it is read as JSON lines: columns and templates are for", ("rows.jsonl", "--chat")),
        ('a.csv: there is no column "txt" (did you mean "text"?); it has "text"', ("a.csv", "--prompt-column", "txt")),
        ("--template: it names no column: write {column}", ("a.csv", "--template", "{{ text }}")),
    ],
)
def test_a_refused_submission_says_why_and_leaves_nothing(shell: Shell, words: str, arguments: tuple[str, ...]) -> None:
    (shell.folder / "rows.jsonl").write_text('{"prompt":"a"}\n')
    (shell.folder / "a.csv").write_text("text\nhi\n")
    (shell.folder / "cut.gz").write_bytes(gzip.compress(b'{"prompt":"b"}\n')[:-4])
    # Cut off so far behind that only reading all of it tells.
    many = b"".join(b'{"prompt":"%d"}\n' % number for number in range(50_000))
    (shell.folder / "late.gz").write_bytes(gzip.compress(many)[:-4])
    ended = shell.run("producer", "submit", *arguments)
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"producer: {words}")
    assert len(ended.stderr.splitlines()) == 1
    assert shell.producer("status", "--json").strip() == "[]"
