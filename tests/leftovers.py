"""What programs may leave behind on the machine: processes, shared memory, temporary files."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

#: The variable that tells the processes of one test, which inherit it, from all others.
MARK = "LEFTOVERS_MARK"

_SHARED_MEMORY = Path("/dev/shm")
#: The inode number in a line of /proc/PID/maps; a semaphore has another name there than in the folder.
_INODE = re.compile(rf"(\d+) +{_SHARED_MEMORY}/")


class Leftovers:
    """Everything that is known by a mark, or by a folder.

    Args:
        mark: the value of `MARK` that the programs were given. One that sets a title of its own overwrites it.
        folder: where they were started; processes that work there are theirs, too.
        temp: their temporary folder (`TMPDIR`).
    """

    def __init__(self, mark: str, folder: Path, temp: Path) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._folder = folder.resolve()
        self._temp = temp
        self._inodes: set[str] = set()

    def processes(self) -> list[int]:
        """Those that live, zombies not counted."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and self._ours(entry):
                    found.append(int(entry.name))
        return found

    def _ours(self, process: Path) -> bool:
        marked = self._mark in (process / "environ").read_bytes().split(b"\0")
        return marked or (process / "cwd").readlink() == self._folder

    def left(self) -> list[str]:
        """All that is still there, a line each."""
        alive = [f"process {pid}: {_command(pid)}" for pid in self.processes()]
        shared = [f"shared memory {it.name}" for it in os.scandir(_SHARED_MEMORY) if str(it.inode()) in self._inodes]
        # PyTorch's cache is every program's of this user.
        files = [f"file {path}" for path in self._temp.iterdir() if not path.name.startswith("torchinductor_")]
        return alive + shared + files

    def await_gone(self, seconds: float = 15.0) -> list[str]:
        """Wait until nothing is left; what is. Python's resource tracker ends a moment after its owner."""
        deadline = time.monotonic() + seconds
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def assert_gone(self, seconds: float = 15.0) -> None:
        """Nothing is left after a while."""
        assert not (left := self.await_gone(seconds)), left

    def end(self) -> list[str]:
        """What is left when all has been told to end, and the end of it."""
        left = self.await_gone()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Learn what shared memory the processes have while the block runs: names say nothing, others use it, too."""
        over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(self._follow, over)
            try:
                yield
            finally:
                over.set()
            following.result()

    def _follow(self, over: threading.Event) -> None:
        while not over.wait(1):
            self.look()

    def look(self) -> None:
        """Learn it now."""
        for pid in self.processes():
            with suppress(OSError):
                self._inodes.update(_INODE.findall(Path(f"/proc/{pid}/maps").read_text()))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
