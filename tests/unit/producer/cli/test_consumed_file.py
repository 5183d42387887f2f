"""The file that results are moved to: what is in it is found, never written twice, never taken for another's."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from producer.cli.common import Refused
from producer.cli.consumed_file import ConsumedFile
from producer.record.consume import Batch

LINES = ['{"n":"\u2028é"}', "{}", '{"long":"' + "x" * 200_000 + '"}', "{} "]


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def digest(*lines: str) -> str:
    return hashlib.sha256(text(*lines)).hexdigest()


def after(before: list[str], lines: list[str]) -> Batch:
    """These lines, as a job gives them whose consumer has got the others."""
    return Batch(len(before), digest(*before) if before else "", lines)


@pytest.mark.parametrize("there", range(len(LINES) + 1))
def test_what_is_there_is_not_written_again(tmp_path: Path, there: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(text(*LINES[:there]))
    with ConsumedFile.opened(path, "job") as file:
        assert file.put(after([], LINES)) == digest(*LINES)
        assert file.put(after([], LINES)) == digest(*LINES)
        assert file.put(after(LINES, ["next"])) == digest(*LINES, "next")
        last = after(LINES[:1], [*LINES[1:], "next", "and next"])  # Redis came back older than the file
        assert file.put(last) == digest(*LINES, "next", "and next")
    assert path.read_bytes() == text(*LINES, "next", "and next")


@pytest.mark.parametrize("length", [1, 7, 9, 70_000])
@pytest.mark.parametrize("whole", range(len(LINES)))
def test_a_torn_line_is_completed(tmp_path: Path, whole: int, length: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(text(*LINES[:whole]) + text(LINES[whole])[:-1][:length])  # within a character, for one
    with ConsumedFile.opened(path, "job") as file:
        assert file.put(after(LINES[:whole], LINES[whole:])) == digest(*LINES)
    assert path.read_bytes() == text(*LINES)


@pytest.mark.parametrize("torn", [b"my notes, no newline", b"\0" * 70_000, b"cc", b"c\0"])
@pytest.mark.parametrize("whole", [[], ["a", "b"]])
@pytest.mark.parametrize("lines", [["c", "d"], []])
def test_a_last_line_that_is_not_the_job_s_is_refused_as_it_is(
    tmp_path: Path, whole: list[str], torn: bytes, lines: list[str]
) -> None:
    path = tmp_path / "out"
    path.write_bytes(text(*whole) + torn)
    with ConsumedFile.opened(path, "job") as file, pytest.raises(Refused, match=r"; name a new file|`head -n 2 "):
        file.put(after(whole, lines))
    assert path.read_bytes() == text(*whole) + torn


def test_files_of_something_else_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(text("a", "b"))
    with ConsumedFile.opened(path, "job") as file:
        with pytest.raises(Refused, match=r"another line 2 .*; name a new file"):
            file.put(after([], ["a", "c"]))
        with pytest.raises(Refused, match=r"another line 2 .* `head -n 1 .*/out > NEW` .* `--consume -o NEW` goes on"):
            file.put(after(["a"], ["c"]))
        with pytest.raises(Refused, match=r"more than the 1 lines .* `head -n 1 "):
            file.missing(after(["a"], []))
        assert file.missing(after(["a", "b"], [])) == b""
    assert path.read_bytes() == text("a", "b")


@pytest.mark.parametrize("lines", [["c"], []])
@pytest.mark.parametrize(
    ("there", "words"),
    [
        (text("a"), "has 1 lines, 2 of the job's results"),
        (text("a") + b"b", "has 1 lines, 2 of the job's results"),
        (text("a", "x"), "has other lines than the 2 of the job's results"),
        (text("{}", "{}", "c"), "has other lines than the 2 of the job's results"),
    ],
)
def test_a_file_without_what_was_consumed_is_refused(
    tmp_path: Path, there: bytes, words: str, lines: list[str]
) -> None:
    path = tmp_path / "out"
    path.write_bytes(there)
    told = f"{words} .* if it is lost or damaged, `producer results job -o OTHER` writes what is still in Redis"
    with ConsumedFile.opened(path, "job") as file, pytest.raises(Refused, match=told):
        file.put(after(["a", "b"], lines))
    assert path.read_bytes() == there


def test_results_that_were_consumed_without_a_file_are_in_none(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(text("a"))
    with ConsumedFile.opened(path, "job") as file, pytest.raises(Refused, match="has other lines"):
        file.put(Batch(1, "", []))


def made(path: Path) -> None:
    """There is no file there yet."""


def empty(path: Path) -> None:
    path.touch()


def linked(path: Path) -> None:
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("before", [made, empty, linked])
def test_a_refused_file_is_there_if_it_was_before(tmp_path: Path, before: Callable[[Path], None]) -> None:
    path = tmp_path / "out"
    before(path)
    found = sorted(tmp_path.iterdir())
    with pytest.raises(Refused, match="has 0 lines"), ConsumedFile.opened(path, "job") as file:
        file.missing(after(["a"], []))
    assert sorted(tmp_path.iterdir()) == found


def test_a_new_file_that_is_refused_later_keeps_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "out"
    # The refusal must leave the file's context, too.
    with pytest.raises(Refused, match="has 1 lines"), ConsumedFile.opened(path, "job") as file:  # noqa: PT012
        file.put(after([], ["a"]))
        file.put(after(["a", "b"], []))
    assert path.read_bytes() == text("a")


def test_a_file_that_somebody_else_put_there_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(Refused, match="removed or"), ConsumedFile.opened(path, "job") as file:  # noqa: PT012 - as above
        path.unlink()
        path.touch()
        file.put(after([], []))
    assert path.exists()


def test_what_is_no_text_is_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with ConsumedFile.opened(path, "job") as file:
        file.put(after([], [b"\xff".decode(errors="surrogateescape")]))
    assert path.read_bytes() == b"\xff\n"


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with ConsumedFile.opened(path, "job"):
        with pytest.raises(Refused, match="another"), ConsumedFile.opened(path, "job"):
            pass
        assert path.exists()
    with ConsumedFile.opened(path, "job"):
        pass


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_goes_away_is_noticed_before_anything_is_trimmed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "out"
    with ConsumedFile.opened(path, "job") as file:
        file.put(after([], ["a"]))
        path.unlink()
        if how == "replaced":
            path.write_bytes(text("a"))
        with pytest.raises(Refused, match="removed or replaced"):
            file.put(after(["a"], ["b"]))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(Refused, match="no file"), ConsumedFile.opened(path, "job"):
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
    with ConsumedFile.opened(path, "job") as file, pytest.raises(OSError, match="No space"):
        file.put(after([], ["one", "two", "three"]))
    assert path.read_bytes() == b"one\ntwo"
    room[0] = 100
    with ConsumedFile.opened(path, "job") as file:
        file.put(after([], ["one", "two", "three"]))
    assert path.read_bytes() == text("one", "two", "three")
