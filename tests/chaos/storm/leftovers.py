"""What a storm may leave behind on the machine: processes, shared memory, temporary files."""

import asyncio
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

#: The variable that everything which the storm starts inherits.
MARK = "STORM_MARK"

_SHARED_MEMORY = Path("/dev/shm")
#: The inode number in a line of /proc/PID/maps; a semaphore has another name there than in the folder.
_INODE = re.compile(rf"(\d+) +{_SHARED_MEMORY}/")


class Leftovers:
    """Everything of one storm, known by its mark.

    Args:
        mark: the value of `MARK`.
        temp: the storm's temporary folder (`TMPDIR`).
    """

    def __init__(self, mark: str, temp: Path) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._temp = temp
        self._inodes: set[str] = set()

    def processes(self) -> list[int]:
        """Those that live, zombies not counted."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and self._mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def left(self) -> list[str]:
        """All that is still there, a line each."""
        alive = [f"process {pid}: {_command(pid)}" for pid in self.processes()]
        shared = [f"shared memory {it.name}" for it in os.scandir(_SHARED_MEMORY) if str(it.inode()) in self._inodes]
        # PyTorch's cache is every program's of this user.
        files = [f"file {path}" for path in self._temp.iterdir() if not path.name.startswith("torchinductor_")]
        return alive + shared + files

    def end(self, seconds: float = 15.0) -> list[str]:
        """What is left when all has been told to end, and the end of it.

        Python's resource tracker ends a moment after its owner.
        """
        deadline = time.monotonic() + seconds
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    async def follow(self) -> None:
        """Learn what shared memory the processes have, for ever: names say nothing, others use it, too."""
        while True:
            self.look()
            await asyncio.sleep(2)

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
