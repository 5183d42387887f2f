"""The plugin in vLLM's processes: errors in one line, and the end of a process whose parent has died."""

import io
import logging
import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from worker.engine import vllm_plugin


@pytest.fixture
def vllm_log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What vLLM's logger prints, at the level it has by default here."""
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)
    handler.setLevel(logging.WARNING)
    monkeypatch.setattr(logging.getLogger("vllm"), "handlers", [handler])
    return printed


def fail(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("vllm.somewhere").exception("It %s.", "failed")


def test_an_error_is_one_line_and_the_first_is_kept(vllm_log: io.StringIO, tmp_path: Path) -> None:
    path = str(tmp_path / "errors")
    assert vllm_plugin.first_error(path) is None
    vllm_plugin.shorten_errors(path)
    vllm_plugin.shorten_errors(path)
    fail("the first\nof them")
    fail("another")
    assert vllm_log.getvalue() == "It failed. ValueError: the first of them\nIt failed. ValueError: another\n"
    assert vllm_plugin.first_error(path) == "ValueError: the first of them"


def test_it_is_known_to_vllm() -> None:
    plugins = {point.name: point.value for point in metadata.entry_points(group="vllm.general_plugins")}
    assert plugins["minedraft"] == "worker.engine.vllm_plugin:register"


def test_it_does_nothing_in_the_processes_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(vllm_plugin.OWNER, raising=False)
    vllm_plugin.register()
    monkeypatch.setenv(vllm_plugin.OWNER, str(os.getpid()))
    vllm_plugin.register()


OWNER = """
import multiprocessing, os, sys, time
from worker.engine import vllm_plugin

def core():
    vllm_plugin.register()
    print(os.getpid(), os.getpgid(0), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    os.environ[vllm_plugin.OWNER], os.environ[vllm_plugin.ERRORS] = str(os.getpid()), sys.argv[1]
    multiprocessing.get_context("spawn").Process(target=core).start()
    time.sleep(60)
"""


def test_a_process_ends_with_a_parent_that_is_killed_and_leaves_nothing_and_its_terminal(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    folder = tmp_path / f"{vllm_plugin.FOLDER_PREFIX}x"
    folder.mkdir()
    owner = subprocess.Popen([sys.executable, str(script), str(folder / "errors")], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child, group = map(int, owner.stdout.readline().split())
    assert group == child != os.getpgid(owner.pid)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 5
    while running(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not folder.exists()
    assert script.exists()


def test_shared_memory_goes_by_the_name_of_the_engines_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shared = tmp_path / "folder", tmp_path / "shared"
    folder.mkdir()
    shared.mkdir()
    monkeypatch.setattr(vllm_plugin, "_SHARED_MEMORY", shared)
    (folder / "vllm_dist_1").touch()
    for name in (
        "vllm_dist_1-tp:0-[0-1]-cpushm_0",
        "vllm_dist_1-tp:0-[0-1]-cpushm_1",
        "vllm_dist_2-tp:0-[0-1]-cpushm_0",
    ):
        (shared / name).touch()
    vllm_plugin.clean_up(folder)
    assert [left.name for left in shared.iterdir()] == ["vllm_dist_2-tp:0-[0-1]-cpushm_0"]


def running(pid: int) -> bool:
    """Whether the process still does anything (one that nobody has waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
