"""`producer results --consume`: one for a job, begun again on the same file until the job has ended."""

import asyncio
import signal
from asyncio.subprocess import Process
from dataclasses import dataclass
from pathlib import Path

from chaos.storm.producers import Producers

#: How long a kill waits for a consumer at work, and how long the last ones may take when all jobs have ended (seconds).
_WAIT_SECONDS, _END_SECONDS = 20.0, 60.0


@dataclass(slots=True)
class _Consumer:
    """One process and its file, which had `before` bytes when the process began."""

    path: Path
    process: Process
    before: int

    @property
    def at_work(self) -> bool:
        """It has moved rows, and it lives."""
        return self.process.returncode is None and _size(self.path) > self.before


class Consumers:
    """Starts them and kills them."""

    def __init__(self, producers: Producers) -> None:
        self._producers = producers
        self._running: dict[str, _Consumer] = {}
        self._keepers: list[asyncio.Task[None]] = []

    def start(self, job: str, path: Path) -> None:
        """Move the results of a job to a file."""
        self._keepers.append(asyncio.create_task(self._keep(job, path)))

    async def kill(self, victim: int) -> bool:
        """kill -9 of one that is in the middle of it; False: there is none."""
        deadline = asyncio.get_running_loop().time() + _WAIT_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            if found := [it for it in self._running.values() if it.at_work]:
                found[victim % len(found)].process.kill()
                return True
            await asyncio.sleep(0.05)
        return False

    async def ended(self) -> None:
        """All jobs have ended: every consumer must, too."""
        for job in await self._late():
            self._producers.findings.append(
                f"the consumer of job {job} goes on {_END_SECONDS:g} s after all jobs ended"
            )

    def close(self) -> None:
        """Start none again."""
        for keeper in self._keepers:
            keeper.cancel()

    async def _late(self) -> list[str]:
        if self._keepers:
            done, _ = await asyncio.wait(self._keepers, timeout=_END_SECONDS)
            for keeper in done:
                keeper.result()
        return list(self._running)

    async def _keep(self, job: str, path: Path) -> None:
        while True:
            before = _size(path)
            process = await self._producers.launch("results", job, "--consume", "-o", str(path))
            self._running[job] = _Consumer(path, process, before)
            _, err = await process.communicate()
            if process.returncode == 0:
                del self._running[job]
                return
            if process.returncode != -signal.SIGKILL:
                self._producers.judge("results --consume", process.returncode or 0, err.decode(errors="replace"))
                await asyncio.sleep(1)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
