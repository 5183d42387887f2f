"""What is left on the machine is found: a process, shared memory, a file."""

import mmap
import os
import secrets
import subprocess
from pathlib import Path

import pytest
from leftovers import MARK, Leftovers


def test_an_orphan(tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    leftovers = Leftovers(mark, tmp_path / "none", tmp_path)
    # Its parent ends at once; it has another folder and no arguments that tell.
    parent = ["sh", "-c", "cd /; sleep 60 >/dev/null & echo $!"]
    pid = int(subprocess.run(parent, env=os.environ | {MARK: mark}, stdout=subprocess.PIPE, check=True).stdout)
    try:
        assert leftovers.left() == [f"process {pid}: sleep 60"]
        assert Leftovers("another", tmp_path / "none", tmp_path).left() == []
    finally:
        os.kill(pid, 9)


def test_one_that_has_overwritten_its_environment_is_known_by_its_folder(tmp_path: Path) -> None:
    """As those that set a title of their own have: vLLM's, for example."""
    home, temp = tmp_path / "home", tmp_path / "temp"
    home.mkdir()
    temp.mkdir()
    with subprocess.Popen(["sleep", "60"], cwd=home, env={}) as orphan:
        leftovers = Leftovers("none", home, temp)
        assert leftovers.left() == [f"process {orphan.pid}: sleep 60"]
        with pytest.raises(AssertionError, match="sleep 60"):
            leftovers.assert_gone(0)
        orphan.kill()
        orphan.wait()
        leftovers.assert_gone()


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "scratch").touch()
    assert Leftovers("none", tmp_path / "none", tmp_path).left() == [f"file {tmp_path / 'scratch'}"]


def test_shared_memory(tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    leftovers = Leftovers(mark, tmp_path / "none", tmp_path)
    path = Path(f"/dev/shm/storm-{mark}")
    path.write_bytes(bytes(mmap.PAGESIZE))
    try:
        script = f"import mmap; f = open({str(path)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); print(flush=1); input()"
        with subprocess.Popen(
            ["python3", "-c", script], env=os.environ | {MARK: mark}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as user:
            assert user.stdout is not None
            user.stdout.readline()
            leftovers.look()
            user.communicate(b"\n")
        assert leftovers.left() == [f"shared memory {path.name}"]
    finally:
        path.unlink()
    assert leftovers.left() == []
