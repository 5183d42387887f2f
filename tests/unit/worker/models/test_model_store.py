import fcntl
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from worker.models import store
from worker.models.errors import ModelError
from worker.models.store import is_intact, obtain


class Builder:
    """Writes two files and counts how often it had to."""

    def __init__(self) -> None:
        self.builds = 0
        self.said: list[str] = []

    def __call__(self, folder: Path, scratch: Path) -> None:
        self.builds += 1
        (scratch / "download").write_bytes(b"x" * 1000)
        (folder / "weights").write_bytes(b"w" * 1000)
        (folder / "sub").mkdir()
        (folder / "sub" / "config").write_text("{}")

    def obtain(self, cache: Path) -> Path:
        return obtain(cache, "model-v1", self, needs_bytes=0, say=self.said.append)


@pytest.fixture
def builder() -> Builder:
    return Builder()


def test_builds_once_and_leaves_only_the_folder(builder: Builder, tmp_path: Path) -> None:
    cache = tmp_path / "new" / "cache"
    assert [builder.obtain(cache) for _ in range(3)] == [cache / "model-v1"] * 3
    assert builder.builds == 1
    assert sorted(path.name for path in cache.iterdir()) == [".model-v1.lock", "model-v1"]
    found = sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())
    assert found == [".model-v1.lock", "model-v1/manifest.json", "model-v1/sub/config", "model-v1/weights"]
    assert builder.said == []


def _truncate(folder: Path) -> None:
    (folder / "weights").write_bytes(b"w" * 999)


def _flip(folder: Path) -> None:
    (folder / "weights").write_bytes(b"w" * 500 + b"x" + b"w" * 499)


def _remove_file(folder: Path) -> None:
    (folder / "sub" / "config").unlink()


def _remove_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _cut_manifest(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text[: len(text) // 2])


def _foreign_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"files": ["weights"]}')


def _binary_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"\xff\x00" * 50)


def _become_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("not a folder")


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _flip,
        _remove_file,
        _remove_manifest,
        _cut_manifest,
        _foreign_manifest,
        _binary_manifest,
        _become_a_file,
    ],
)
def test_a_damaged_folder_is_built_again(builder: Builder, tmp_path: Path, damage) -> None:
    folder = builder.obtain(tmp_path)
    damage(folder)
    assert not is_intact(folder)
    assert builder.obtain(tmp_path) == folder
    assert is_intact(folder)
    assert builder.builds == 2
    assert builder.said == [f"{folder} is damaged; building it again"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model-v1.lock", "model-v1"]


def test_a_copied_cache_is_read_and_trusted(builder: Builder, tmp_path: Path) -> None:
    folder = builder.obtain(tmp_path / "a")
    copy = tmp_path / "b" / "model-v1"
    shutil.copytree(folder, copy, copy_function=shutil.copyfile)
    os.utime(copy / "weights", (1, 1))
    builder.obtain(tmp_path / "b")
    assert builder.builds == 1


def test_an_intact_folder_is_not_read_again(builder: Builder, tmp_path: Path, monkeypatch) -> None:
    builder.obtain(tmp_path)
    monkeypatch.setattr(store, "_sha256", lambda path: pytest.fail(f"read {path}"))
    builder.obtain(tmp_path)


def test_a_failed_build_leaves_nothing_and_says_why(tmp_path: Path) -> None:
    def full(folder: Path, scratch: Path) -> None:
        (folder / "weights").write_bytes(b"w")
        raise OSError(28, "No space left on device", "weights")

    with pytest.raises(ModelError, match=r"^cannot build \S+/model-v1: No space left on device$"):
        obtain(tmp_path, "model-v1", full, needs_bytes=0, say=print)
    assert [path.name for path in tmp_path.iterdir()] == [".model-v1.lock"]


def test_a_failed_rebuild_raises_too(builder: Builder, tmp_path: Path) -> None:
    def refused(folder: Path, scratch: Path) -> None:
        raise ModelError("no network")

    _truncate(builder.obtain(tmp_path))
    with pytest.raises(ModelError, match="no network"):
        obtain(tmp_path, "model-v1", refused, needs_bytes=0, say=print)


def test_a_cache_that_cannot_be_made(builder: Builder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="Not a directory"):
        builder.obtain(tmp_path / "file" / "cache")


def test_too_little_space_is_said_before_building(builder: Builder, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"not enough disk space in .*: 1000000000\.0 GB needed, .* GB free"):
        obtain(tmp_path, "model-v1", builder, needs_bytes=10**18, say=print)
    assert builder.builds == 0


SLOW_BUILD = """
    import os, sys, time
    from pathlib import Path
    from worker.models.store import obtain

    cache, fate = Path(sys.argv[1]), sys.argv[2]

    def build(folder, scratch):
        with (cache / "builds").open("a") as log:
            log.write("x")
        (folder / "weights").write_text("w")
        if fate == "die":
            os.kill(os.getpid(), 9)
        time.sleep(0.5)

    print(obtain(cache, "model-v1", build, needs_bytes=0, say=lambda line: print(line, file=sys.stderr)))
"""


def start_process(cache: Path, fate: str) -> subprocess.Popen[str]:
    code = textwrap.dedent(SLOW_BUILD)
    return subprocess.Popen(
        [sys.executable, "-c", code, cache, fate], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_of_processes_that_ask_at_once_one_builds(tmp_path: Path) -> None:
    processes = [start_process(tmp_path, "live") for _ in range(4)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert {out for out, _ in outputs} == {f"{tmp_path / 'model-v1'}\n"}
    assert (tmp_path / "builds").read_text() == "x"
    assert {err for _, err in outputs} <= {"", "another process is building model-v1; waiting for it\n"}


def test_waiting_for_another_process_is_said(tmp_path: Path) -> None:
    with (tmp_path / ".model-v1.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start_process(tmp_path, "live")
        assert process.stderr is not None
        assert process.stderr.readline() == "another process is building model-v1; waiting for it\n"
    out, _ = process.communicate(timeout=60)
    assert out == f"{tmp_path / 'model-v1'}\n"


def test_a_killed_build_is_cleared_away_by_the_next(builder: Builder, tmp_path: Path) -> None:
    process = start_process(tmp_path, "die")
    process.communicate(timeout=60)
    assert process.returncode == -9
    assert list(tmp_path.glob(".model-v1.building-*"))
    assert is_intact(builder.obtain(tmp_path))
    assert not list(tmp_path.glob(".model-v1.building-*"))


def test_the_cache_folder_is_the_users_or_named(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MINEDRAFT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.default_cache() == tmp_path / "minedraft"
    monkeypatch.setenv("MINEDRAFT_CACHE_DIR", str(tmp_path / "other"))
    assert store.default_cache() == tmp_path / "other"
