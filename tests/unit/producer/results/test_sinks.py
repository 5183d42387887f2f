"""Files of results that are given up half-way."""

import errno
import gc
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from producer.errors import Refused
from producer.record.models import Answer, Outcome, Row
from producer.results import writers
from producer.results.outputs import Outputs
from producer.results.sinks import Sinks, Wanted

NAMES = ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst", "out.parquet"]
ROW = Row(0, 1, "r", "/v1/completions", {})
LINE = Outcome.answered(ROW, Answer({"choices": [{"text": "t"}]}, 1, 1)).line.encode() + b"\n"


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something of a table is written before its end; and what is raised where nobody can catch it is printed."""
    monkeypatch.setattr(writers, "_GROUP_ROWS", 2)
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)


def nothing_is_left(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gc.collect()
    assert capfd.readouterr() == ("", "")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("why", [Refused, KeyboardInterrupt])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_and_nothing_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, why: type[BaseException]
) -> None:
    def half() -> None:
        with Outputs.opened() as outputs:
            sinks = Sinks(outputs, Wanted(tmp_path / name, tmp_path / f"bad-{name}"))
            sinks.write(5 * LINE)
            raise why

    with pytest.raises(why):
        half()
    nothing_is_left(tmp_path, capfd)


@pytest.mark.parametrize("room", [0, 4, 500])
@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_is_full_is_one_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, room: int
) -> None:
    real = tempfile.NamedTemporaryFile

    def small(**how: Any) -> Any:
        stream, left = real(**how), room
        write = stream.write

        def limited(data: bytes) -> int:
            nonlocal left
            left -= memoryview(data).nbytes
            if left < 0 and not stream.closed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(data)

        stream.write = limited
        return stream

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", small)

    def whole() -> None:
        with Outputs.opened() as outputs:
            sinks = Sinks(outputs, Wanted(tmp_path / name))
            for _ in range(100):
                sinks.write(LINE.replace(b'"t"', b'"%s"' % os.urandom(50).hex().encode()))
            sinks.close()

    with pytest.raises(OSError, match="No space left"):
        whole()
    nothing_is_left(tmp_path, capfd)
