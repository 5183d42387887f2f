"""The processes of a two-batch engine, seen from outside, and what a worker may leave behind on the machine."""

import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from shell import Shell, Worker

ENGINE, DRAFTER = "minedraft::engine", "minedraft::drafter"

#: What a worker logs when it has noticed that its engine died, and when it has another one.
DIED, BACK = "the engine died", "the engine is back"

_SHARED_MEMORY = Path("/dev/shm")
#: The inode number in a line of /proc/PID/maps; a semaphore has another name there than in the folder.
_INODE = re.compile(rf"(\d+) +{_SHARED_MEMORY}/")


def verifier(rank: int) -> str:
    return f"minedraft::verifier_{rank}"


def ranks(pid: int) -> dict[str, int]:
    """The process ids of the engine's processes below a process, by what `ps` calls them."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return {}
    titles = {_title(child.pid): child.pid for child in below}
    return {title: found for title, found in titles.items() if title.startswith("minedraft::")}


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().strip(b"\0 ").decode(errors="replace")
    except OSError:
        return ""


def await_born(worker: Worker, seconds: float = 120.0) -> dict[str, int]:
    """The process ids of an engine that starts, and of its first two ranks, when they are not named yet."""
    await_true(lambda: len(_born(worker.process.pid)) == 3, seconds, worker.text)
    return _born(worker.process.pid)


def _born(pid: int) -> dict[str, int]:
    engine = ranks(pid).get(ENGINE)
    try:
        below = psutil.Process(engine).children() if engine else []
    except psutil.NoSuchProcess:
        return {}
    born = [engine, *sorted(child.pid for child in below)]
    return {name: found for name, found in zip((ENGINE, DRAFTER, verifier(0)), born, strict=False) if found}


def await_more(worker: Worker, words: str, times: int, seconds: float) -> None:
    """Wait until the worker has said `words` so many times."""
    await_true(lambda: worker.text().count(words) >= times, seconds, worker.text)


def await_true(condition: Callable[[], bool], seconds: float, why: Callable[[], Any]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def strike(worker: Worker, name: str, number: int = signal.SIGKILL, *, notice: float = 10.0) -> None:
    """Hit a process of the worker's engine; wait until the worker has noticed and until it has another engine.

    Args:
        worker: its engine is up.
        name: of the process.
        number: the signal.
        notice: how long it may take to notice (seconds).
    """
    died, back = worker.text().count(DIED), worker.text().count(BACK)
    began = time.monotonic()
    os.kill(ranks(worker.process.pid)[name], number)
    await_more(worker, DIED, died + 1, notice)
    noticed = time.monotonic()
    await_more(worker, BACK, back + 1, 180)
    print(f"{name}: noticed after {noticed - began:.1f} s, back after {time.monotonic() - noticed:.1f} s more")


class Footprint:
    """What the workers of one shell have on the machine: processes, shared memory, temporary files."""

    def __init__(self, folder: Path, temp: Path) -> None:
        self._folder, self._temp = folder, temp
        self._inodes: set[str] = set()

    def left(self) -> list[str]:
        """All of it that is still there."""
        processes = [f"process {pid} {_title(pid)}" for pid in self._processes()]
        # PyTorch's cache is every program's of this user.
        files = [str(path) for path in self._temp.rglob("*") if not path.name.startswith("torchinductor_")]
        shared = [entry.name for entry in os.scandir(_SHARED_MEMORY) if str(entry.inode()) in self._inodes]
        return processes + files + shared

    def assert_gone(self, seconds: float = 15.0) -> None:
        """Nothing is left, once Python's resource tracker has ended, too: it does a moment after its owner."""
        await_true(lambda: not self.left(), seconds, self.left)

    def follow(self, over: threading.Event) -> None:
        """Learn what shared memory the processes have, for names say nothing: another worker may run here, too."""
        while not over.wait(1):
            for pid in self._processes():
                with suppress(OSError):
                    self._inodes.update(_INODE.findall(Path(f"/proc/{pid}/maps").read_text()))

    def _processes(self) -> list[int]:
        """By their working directory: it is inherited, and survives the parent's death."""
        found = []
        for pid in psutil.pids():
            with suppress(OSError):
                if Path(f"/proc/{pid}/cwd").readlink() == self._folder:
                    found.append(pid)
        return found


@contextmanager
def footprint(shell: Shell) -> Iterator[Footprint]:
    """Give the shell's programs a temporary folder of their own, and watch what they leave."""
    over = threading.Event()
    # Not below the test's folder: the names of Unix sockets must be short.
    with tempfile.TemporaryDirectory(prefix="md-") as temp, ThreadPoolExecutor() as pool:
        shell.environment["TMPDIR"] = temp
        made = Footprint(shell.folder.resolve(), Path(temp))
        following = pool.submit(made.follow, over)
        try:
            yield made
        finally:
            over.set()
        following.result()
