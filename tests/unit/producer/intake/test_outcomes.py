"""Everything odd that a file may hold, by name, from its bytes to what becomes of every row."""

import gzip
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from backports import zstd

from producer.intake.lines import MAX_LINE_BYTES
from producer.intake.rows import Reject, parse_line
from producer.intake.sources import SourceError, open_source

GOOD = b'{"prompt":"x"}'


def saying(**parts: str) -> bytes:
    """A line with raw JSON values."""
    return ("{" + ",".join(f'"{name}":{value}' for name, value in parts.items()) + "}").encode()


def nested(levels: int) -> bytes:
    """A chat whose JSON is so many levels deep in all."""
    return saying(messages='[{"role":"user","content":' + "[" * (levels - 3) + "]" * (levels - 3) + "}]")


def zip_of(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "x")
    return packed.getvalue()


CHECKED = zstd.compress(GOOD, options={zstd.CompressionParameter.checksum_flag: 1})

#: What is in the file -> for every row `line name` or `line !code`; as a text: why the file is refused, whole.
OUTCOMES: dict[str, tuple[bytes, list[str] | str]] = {
    "nothing": (b"", []),
    "a last line without a newline": (GOOD + b"\n" + GOOD, ["1 row-1", "2 row-2"]),
    "blank lines": (b"\n \t\n" + GOOD + b"\n\r\n\v\f\n" + GOOD, ["3 row-3", "6 row-6"]),
    "CRLF": (GOOD + b"\r\n" + GOOD + b"\r\n", ["1 row-1", "2 row-2"]),
    "CR alone ends no line": (GOOD + b"\r" + GOOD, ["1 !invalid_json"]),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD, ["1 row-1"]),
    "byte order mark alone": (b"\xef\xbb\xbf\n", []),
    "byte order mark inside": (GOOD + b"\n\xef\xbb\xbf" + GOOD, ["1 row-1", "2 !invalid_json"]),
    "U+2028 in a string": ('{"prompt":"a\u2028b"}\n'.encode() + GOOD, ["1 row-1", "2 row-2"]),
    "U+2029, U+0085, VT, FF in a file": (
        "\u2029\n\x85\n\v{}\n\f7".encode(),
        [f"{n} !invalid_json" for n in (1, 2, 3, 4)],
    ),
    "NUL": (b"\0\n" + GOOD, ["1 !invalid_json", "2 row-2"]),
    "NUL, escaped": (saying(prompt='"\\u0000"'), ["1 row-1"]),
    "bad UTF-8": (b'{"prompt":"\xff"}\n' + GOOD, ["1 !invalid_utf8", "2 row-2"]),
    "UTF-16": ('{"prompt":"x"}'.encode("utf-16"), ["1 !invalid_utf8"]),
    "lone surrogate, escaped": (saying(custom_id='"a"', prompt='"\\ud800"'), ["1 a !lone_surrogate"]),
    "lone surrogate, encoded": (b'{"prompt":"\xed\xa0\x80"}', ["1 !invalid_utf8"]),
    "surrogates in pairs": (saying(prompt='"\\ud83d\\ude00"'), ["1 row-1"]),
    "NaN": (saying(prompt='"x"', top_p="NaN"), ["1 row-1 !invalid_number"]),
    "Infinity": (saying(prompt='"x"', top_p="-Infinity"), ["1 row-1 !invalid_number"]),
    "a float that overflows": (saying(prompt='"x"', top_p="1e999"), ["1 row-1 !number_out_of_range"]),
    "the largest integer": (saying(prompt='"x"', seed=str(2**63 - 1)), ["1 row-1"]),
    "a larger integer": (saying(prompt='"x"', seed=str(2**63)), ["1 row-1 !number_out_of_range"]),
    "an integer of 5,000 digits": (saying(prompt='"x"', seed="9" * 5000), ["1 row-1 !number_out_of_range"]),
    "duplicate keys": (b'{"prompt":"x","prompt":"y"}', ["1 row-1 !duplicate_key"]),
    "duplicate keys, inside": (saying(prompt='"x"', extra='{"a":1,"a":1}'), ["1 row-1 !duplicate_key"]),
    "deep nesting": (nested(100), ["1 row-1"]),
    "deeper nesting": (nested(101), ["1 row-1 !nested_too_deep"]),
    "nesting that breaks parsers": (nested(100_000), ["1 !nested_too_deep"]),
    "a giant line": (b"x" * (MAX_LINE_BYTES + 1) + b"\n" + GOOD, ["1 !line_too_long", "2 row-2"]),
    "no object": (b'[]\n"x"\n7\nnull\n{}', [*(f"{n} !not_an_object" for n in (1, 2, 3, 4)), "5 row-5 !missing_prompt"]),
    "cut off": (GOOD[:-3], ["1 !invalid_json"]),
    "gzip": (gzip.compress(GOOD, mtime=0), ["1 row-1"]),
    "gzip, two members": (
        gzip.compress(GOOD[:5], mtime=0) + gzip.compress(GOOD[5:] + b"\n" + GOOD, mtime=0),
        ["1 row-1", "2 row-2"],
    ),
    "gzip, cut off": (gzip.compress(GOOD, mtime=0)[:-1], "its gzip stream is cut off; copy the file again"),
    "gzip, damaged": (gzip.compress(GOOD, mtime=0)[:-5] + b"1234\n", "its gzip stream cannot be unpacked"),
    "gzip, more behind it": (gzip.compress(GOOD, mtime=0) + GOOD, "its gzip stream cannot be unpacked"),
    "zstd": (zstd.compress(GOOD), ["1 row-1"]),
    "zstd, two frames": (zstd.compress(GOOD[:5]) + zstd.compress(GOOD[5:]), ["1 row-1"]),
    "zstd, cut off": (zstd.compress(GOOD)[:-1], "its zstd stream is cut off; copy the file again"),
    "zstd, damaged": (CHECKED[:-1] + b"\n", "its zstd stream cannot be unpacked"),
    "packed twice": (gzip.compress(gzip.compress(GOOD), mtime=0), "it is packed twice"),
    "a zip archive": (zip_of("a.jsonl"), "it is a zip archive; unpack it and name the files in it"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer; fetch"),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_what_becomes_of(name: str, tmp_path: Path) -> None:
    data, expected = OUTCOMES[name]
    (tmp_path / "rows").write_bytes(data)
    if isinstance(expected, str):
        with pytest.raises(SourceError) as refused:
            list(outcomes(tmp_path / "rows"))
        assert str(refused.value).startswith(f"{tmp_path}/rows: {expected}")
        assert "\n" not in str(refused.value)
    else:
        assert list(outcomes(tmp_path / "rows")) == expected


def outcomes(path: Path) -> Iterator[str]:
    for index, line in enumerate(open_source([str(path)]).lines()):
        row = parse_line(line, index)
        assert (row.index, row.line) == (index, line.number)
        yield " ".join(
            str(part)
            for part in (row.line, row.custom_id, f"!{row.fault.code}" if isinstance(row, Reject) else None)
            if part is not None
        )
        if not isinstance(row, Reject):
            json.loads(row.to_json().encode())
