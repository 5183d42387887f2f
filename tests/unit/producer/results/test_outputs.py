"""Files that appear together, or not at all."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from producer.results.outputs import Output, Outputs


def test_files_appear_at_the_end_and_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"old")
    with Outputs.opened() as outputs:
        one, two = outputs.add(tmp_path / "one"), outputs.add(tmp_path / "two")
        one.write(b"1")
        one.write(b"1")
        two.write(b"2")
        assert (tmp_path / "one").read_bytes() == b"old"
        assert not (tmp_path / "two").exists()
        outputs.commit()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"one": b"11", "two": b"2"}
    assert (one.size, one.sha256) == (2, hashlib.sha256(b"11").hexdigest())
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "two").stat().st_mode & 0o777 == 0o666 & ~mask


def test_what_is_not_committed_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"old")
    # It must leave the outputs' context, too.
    with pytest.raises(KeyboardInterrupt), Outputs.opened() as outputs:  # noqa: PT012
        outputs.add(tmp_path / "one").write(b"new")
        raise KeyboardInterrupt
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"one": b"old"}


def test_the_file_that_a_link_means_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    with Outputs.opened() as outputs:
        outputs.add(tmp_path / "link").write(b"new")
        outputs.commit()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_errors_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with Outputs.opened() as outputs:
        for path in (tmp_path, tmp_path / "no" / "folder"):
            with pytest.raises(OSError, match="directory") as told:
                outputs.add(path)
            assert told.value.filename == str(path)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "one"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as told, Outputs.opened() as outputs:  # noqa: PT012 - as above
        outputs.add(path).write(b"new")
        outputs.commit()
    assert told.value.filename == str(path)
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {"one": b"old"}


def test_a_reader_that_has_gone_is_known_as_such(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with pytest.raises(BrokenPipeError), os.fdopen(theirs, "wb", buffering=0) as stream:
        Output(stream, tmp_path).write(b"x")
