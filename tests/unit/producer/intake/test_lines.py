import io
import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.intake.lines import Line, TooLong, numbered_lines


def lines(data: bytes, **options) -> list[Line | TooLong]:
    return list(numbered_lines(io.BytesIO(data), **options))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", []),
        (b"a", [(1, b"a")]),
        (b"a\n", [(1, b"a")]),
        (b"a\nb", [(1, b"a"), (2, b"b")]),
        (b"\n \t\na\n\r\n\v\f\nb\n\n", [(3, b"a"), (6, b"b")]),
        (b"a\r\nb\r\n", [(1, b"a"), (2, b"b")]),
        (b"a\r\r\n", [(1, b"a\r")]),
        (b"a\rb\vc\fd\x1ce\n", [(1, b"a\rb\vc\fd\x1ce")]),
        ("a\u2028b\u2029c\u0085d\n".encode(), [(1, "a\u2028b\u2029c\u0085d".encode())]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", [(1, b"a"), (2, b"\xef\xbb\xbfb")]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\r\na", [(2, b"a")]),
        (b"\0\n", [(1, b"\0")]),
    ],
)
def test_which_lines_a_file_has(data, expected):
    assert lines(data) == [Line(*one) for one in expected]


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_the_limit_is_inclusive_and_leaves_the_next_line_alone(ending):
    assert lines(b"x" * 10 + ending, limit=10) == [Line(1, b"x" * 10)]
    assert lines(b"x" * 11 + ending, limit=10) == [TooLong(1, 11, 10)]
    assert lines(b"x" * 11 + b"\nb" + ending, limit=10) == [TooLong(1, 11, 10), Line(2, b"b")]


def test_each_line_says_which_file_it_is_from():
    assert lines(b"a\n" + b"x" * 11, file="f", limit=10) == [Line(1, b"a", "f"), TooLong(2, 11, 10, "f")]


def test_a_giant_line_is_never_held_in_memory(tmp_path):
    path = tmp_path / "giant"
    size = 256 * 2**20
    with path.open("wb") as file:
        file.write(b"first\n")
        os.truncate(file.fileno(), 6 + size)  # a hole: 256 MiB of NUL bytes
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast")
    tracemalloc.start()
    try:
        with path.open("rb") as file:
            got = list(numbered_lines(file, limit=2**20))
        assert got == [Line(1, b"first"), TooLong(2, size, 2**20), Line(3, b"last")]
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_lines_arrive_while_the_writer_is_still_writing():
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "wb", buffering=0) as writer:
        writer.write(b"one\ntw")
        stream = numbered_lines(reader)
        assert next(stream) == Line(1, b"one")
        writer.write(b"o\n")
        assert next(stream) == Line(2, b"two")


@given(st.lists(st.binary(max_size=12).filter(lambda part: b"\n" not in part)), st.integers(1, 12))
def test_every_line_is_yielded_skipped_as_blank_or_marked_too_long(parts, limit):
    expected = []
    for number, part in enumerate(parts, 1):
        if len(part) > limit:
            expected.append(TooLong(number, len(part), limit))
        elif part.strip():
            expected.append(Line(number, part.removesuffix(b"\r")))
    got = lines(b"\n".join(parts), limit=limit)
    if not parts or not parts[0].startswith(b"\xef\xbb\xbf"):
        assert got == expected
