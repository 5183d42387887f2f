"""FILE.part: continued after its whole lines, and nothing of anybody else's is cut off."""

import hashlib
import os
from pathlib import Path

import pytest

from producer.errors import Refused
from producer.record.fetch import Page, Place, mark
from producer.results.part import Part, scanned

LINES = [b'{"n":0}', b'{"response":null,"error":{"code":"no"}}', b"x" * 3_000_000, b"last"]


def text(*lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def page(at: int) -> Page:
    """All lines from there on."""
    return Page(text(*LINES[at:]), len(LINES) - at, Place(len(LINES), mark(LINES[-1])))


@pytest.mark.parametrize("torn", [0, 1, 4])
@pytest.mark.parametrize("there", range(len(LINES)))
def test_it_goes_on_after_what_is_there(tmp_path: Path, there: int, torn: int) -> None:
    path = tmp_path / "out"
    (tmp_path / "out.part").write_bytes(text(*LINES[:there]) + LINES[there][:torn])
    with Part.opened(path) as part:
        assert part.place == Place(there, mark(LINES[there - 1]) if there else "")
        assert part.tally.lines == there
        part.add(page(there))
        assert part.place == page(there).end
        file = part.written(path)
        part.become(path)
    assert path.read_bytes() == text(*LINES)
    assert (file.lines, file.bytes, file.name) == (len(LINES), path.stat().st_size, "out")
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert part.tally.codes == {"no": 1}
    assert [found.name for found in tmp_path.iterdir()] == ["out"]
    assert scanned(path) == (part.tally, file)


def test_lines_come_again_for_another_format(tmp_path: Path) -> None:
    with Part.opened(tmp_path / "out") as part:
        part.add(page(0))
        assert b"".join(part.lines()) == text(*LINES)
        part.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("foreign", [b"my notes, no newline", b"\0\0"])
def test_what_is_not_the_job_s_stays_as_it_is(tmp_path: Path, foreign: bytes) -> None:
    (tmp_path / "out.part").write_bytes(foreign)
    with Part.opened(tmp_path / "out") as part:
        with pytest.raises(Refused, match=r"out.part has other lines than the job: .* `rm .*out.part`"):
            part.add(page(0))
        with pytest.raises(Refused, match="has other lines"):
            part.written(tmp_path / "out")
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {"out.part": foreign}


def test_one_at_a_time(tmp_path: Path) -> None:
    told = pytest.raises(Refused, match="another `producer results --follow`")
    with Part.opened(tmp_path / "out"), told, Part.opened(tmp_path / "out"):
        pass
    with Part.opened(tmp_path / "out"):
        pass


def test_one_that_was_completed_just_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def late(*arguments: int) -> int:
        found = real(*arguments)
        (tmp_path / "out.part").rename(tmp_path / "out")
        return found

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(Refused, match="just completed"), Part.opened(tmp_path / "out"):
        pass
