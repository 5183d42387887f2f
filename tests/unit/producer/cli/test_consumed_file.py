"""The file that results are moved to: what is in it is found, never written twice, never taken for another's."""

import errno
import os
from pathlib import Path

import pytest

from producer.cli.common import Refused
from producer.cli.consumed_file import ConsumedFile

LINES = ['{"n":"\u2028é"}', "{}", '{"long":"' + "x" * 200_000 + '"}', "{} "]


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.mark.parametrize("there", range(len(LINES) + 1))
def test_what_is_there_is_not_written_again(tmp_path: Path, there: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(text(*LINES[:there]))
    with ConsumedFile.opened(path) as file:
        file.put(0, LINES)
        file.put(0, LINES)
        file.put(len(LINES), ["next"])
        file.put(1, [*LINES[1:], "next", "and next"])  # Redis came back older than the file
    assert path.read_bytes() == text(*LINES, "next", "and next")


@pytest.mark.parametrize("torn", [b"{", b"\0" * 70_000, "é".encode()[:1], b"x" * (1 << 16)])
@pytest.mark.parametrize("whole", [b"", text(*LINES)])
def test_a_torn_line_is_cut_off(tmp_path: Path, whole: bytes, torn: bytes) -> None:
    path = tmp_path / "out"
    path.write_bytes(whole + torn)
    with ConsumedFile.opened(path):
        assert path.read_bytes() == whole


def test_files_of_something_else_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(text("a", "b"))
    with ConsumedFile.opened(path) as file:
        with pytest.raises(Refused, match=r"another line 2 .*; name a new file"):
            file.put(0, ["a", "c"])
        with pytest.raises(Refused, match=r"another line 2 .* `head -n 1 .*/out > NEW` .* `--consume -o NEW` goes on"):
            file.put(1, ["c"])
        with pytest.raises(Refused, match="has 2 lines, 3 of"):
            file.put(3, ["d"])
        with pytest.raises(Refused, match=r"more lines than the 1 .* `head -n 1 "):
            file.there(1, [])
        assert file.there(2, []) == 0
    assert path.read_bytes() == text("a", "b")


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with ConsumedFile.opened(path), pytest.raises(Refused, match="another"), ConsumedFile.opened(path):
        pass
    with ConsumedFile.opened(path):
        pass


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_goes_away_is_noticed_before_anything_is_trimmed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "out"
    with ConsumedFile.opened(path) as file:
        file.put(0, ["a"])
        path.unlink()
        if how == "replaced":
            path.write_bytes(text("a"))
        with pytest.raises(Refused, match="removed or replaced"):
            file.put(1, ["b"])


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(Refused, match="no file"), ConsumedFile.opened(path):
            pass


def test_a_disk_that_fills_up_in_the_middle_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, room, write = tmp_path / "out", [7], os.write

    def scarce(descriptor: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(descriptor, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr(os, "write", scarce)
    with ConsumedFile.opened(path) as file, pytest.raises(OSError, match="No space"):
        file.put(0, ["one", "two", "three"])
    assert path.read_bytes() == b"one\ntwo"
    room[0] = 100
    with ConsumedFile.opened(path) as file:
        file.put(0, ["one", "two", "three"])
    assert path.read_bytes() == text("one", "two", "three")
