"""Compressed files give the lines of plain ones, whole or not at all, in bounded memory."""

import gzip
import io
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from backports import zstd
from fuzz_lines import fuzzed_lines
from hypothesis import given
from hypothesis import strategies as st

from producer.intake.compressed import decompressed, is_packed
from producer.intake.lines import Line, TooLong, numbered_lines
from producer.intake.refused import SourceError
from producer.intake.sources import open_source

Pack = Callable[[bytes], bytes]
PACKS: tuple[Pack, ...] = (gzip.compress, zstd.compress, partial(gzip.compress, compresslevel=1))


def unpacked(data: bytes) -> list[Line | TooLong]:
    stream = decompressed(io.BytesIO(data), data[:8], "it")
    assert stream
    return list(numbered_lines(stream))


def plain(data: bytes) -> list[Line | TooLong]:
    assert not is_packed(data)
    return list(numbered_lines(io.BytesIO(data)))


pieces = st.lists(st.binary(max_size=40) | st.sampled_from([b"\n", b"\r\n", b"{}\n"]), min_size=1, max_size=8)


@given(pieces, st.sampled_from(PACKS))
def test_any_bytes_in_any_number_of_members_give_the_same_lines(parts: Sequence[bytes], pack: Pack) -> None:
    assert unpacked(b"".join(map(pack, parts))) == list(numbered_lines(io.BytesIO(b"".join(parts))))


@pytest.mark.parametrize("pack", PACKS[:2])
def test_fuzzed_lines(pack: Pack) -> None:
    data = b"\n".join(fuzzed_lines(500, seed=3))
    assert unpacked(pack(data)) == plain(data)


@given(st.binary(min_size=1, max_size=200), st.data(), st.sampled_from(PACKS))
def test_cut_anywhere_it_is_refused(content: bytes, data: st.DataObject, pack: Pack) -> None:
    packed = pack(content)
    cut = packed[: data.draw(st.integers(4, len(packed) - 1))]
    with pytest.raises(SourceError, match=r"^it: its (gzip|zstd) stream is cut off; copy the file again$"):
        unpacked(cut)


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_bit_that_flips_in_gzip_is_noticed_or_harmless(content: bytes, data: st.DataObject) -> None:
    packed = bytearray(gzip.compress(content, mtime=0))
    at = data.draw(st.integers(10 * 8, len(packed) * 8 - 1))  # behind the header
    packed[at // 8] ^= 1 << at % 8
    with suppress(SourceError):
        assert unpacked(bytes(packed)) == list(numbered_lines(io.BytesIO(content)))


def test_a_zstd_window_that_takes_too_much_memory_is_refused() -> None:
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    with pytest.raises(SourceError, match=r"too much memory.*pack it without --long"):
        unpacked(packer.compress(b"x" * 1000) + packer.flush())


@pytest.mark.parametrize("module", [gzip, zstd])
def test_a_bomb_is_one_long_line_in_bounded_memory(module, tmp_path: Path) -> None:
    size = 200 * 2**20
    with module.open(tmp_path / "bomb", "wb") as file:
        file.write(b"first\n")
        for _ in range(200):
            file.write(bytes(2**20))
        file.write(b"\nlast")
    assert (tmp_path / "bomb").stat().st_size < size / 500
    tracemalloc.start()
    try:
        lines = list(open_source([str(tmp_path / "bomb")]).lines())
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
    assert [(line.number, getattr(line, "size", 0)) for line in lines] == [(1, 0), (2, size), (3, 0)]
