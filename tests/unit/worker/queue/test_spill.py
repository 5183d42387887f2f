"""Lines on disk, and nothing left behind."""

import asyncio
import errno
import os
import tempfile
from pathlib import Path

import pytest

from worker.queue import spill
from worker.queue.spill import Spill


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_lines_come_back_and_the_file_has_no_name(folder: Path) -> None:
    kept = Spill()
    texts = [bytes([65 + n]) * (n * 1000 + 1) for n in range(20)]
    places = await asyncio.gather(*[kept.keep(text) for text in texts])
    assert not list(folder.iterdir())  # noqa: ASYNC240 - a test may wait
    assert kept.bytes == sum(map(len, texts))
    assert [await kept.read(place) for place in places] == texts
    for place in places:
        kept.forget(place)
    assert kept.bytes == 0
    assert kept._file is not None
    assert os.fstat(kept._file).st_size == 0
    again = await kept.keep(b"again")
    assert again.at == 0
    assert await kept.read(again) == b"again"
    kept.close()


async def test_a_full_disk_is_an_error_and_costs_no_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Spill()
    first = await kept.keep(b"first")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(spill, "_write", full)
        with pytest.raises(OSError, match="No space"):
            await kept.keep(b"second")
    third = await kept.keep(b"third")
    assert [await kept.read(place) for place in (first, third)] == [b"first", b"third"]
    assert kept.bytes == len(b"firstthird")
    kept.close()


def test_a_write_that_stops_half_way_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real(file, bytes(data[:3]), at))
    with (tmp_path / "f").open("w+b") as file:
        spill._write(file.fileno(), b"0123456789", 2)
        assert os.pread(file.fileno(), 20, 0) == b"\0\x000123456789"
