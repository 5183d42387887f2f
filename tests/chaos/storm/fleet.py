"""The workers: one in each slot, each with a network of its own; a slot's worker is replaced when it has ended."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from chaos.storm.proxy import Proxy

_WORKER = Path(sys.executable).parent / "worker"

#: What no worker may log: how a traceback ends, and a line that says so itself.
_TROUBLE = re.compile(r"^Traceback .*\n(?:[ \n].*\n)*(\S.*)|^.*(?:this is a bug).*", re.MULTILINE)

#: How long a worker may take to start, and to drain (seconds), on a machine that is busy.
_START_SECONDS, _DRAIN_SECONDS = 60.0, 60.0


class Slot:
    """A place for a worker."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.process: subprocess.Popen[bytes]
        self.log: Path
        self.disturbed = True  # it starts, or is frozen, or has no network


class Fleet:
    """Starts, hurts and ends workers. `findings` says what no worker should have done."""

    def __init__(self, folder: Path, environment: dict[str, str], socket: Path, flags: list[str], workers: int) -> None:
        self.slots = [Slot(Proxy(socket)) for _ in range(workers)]
        self.findings: list[str] = []
        self._folder = folder
        self._environment = environment
        self._flags = flags
        self._logs: list[Path] = []
        self._background: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """A worker in each slot, all of them serving."""
        for slot in self.slots:
            await slot.proxy.listen()
            self._launch(slot)
        while any(slot.disturbed for slot in self.slots):
            await asyncio.sleep(0.1)

    async def undisturbed(self, first: int) -> Slot:
        """A slot that nothing ails, from the number `first` on; another one is left at work."""
        while True:
            turn = [self.slots[(first + more) % len(self.slots)] for more in range(len(self.slots))]
            well = [slot for slot in turn if not slot.disturbed]
            if len(well) > 1:
                return well[0]
            await asyncio.sleep(0.1)

    @property
    def at_work(self) -> bool:
        """There is a worker that nothing ails."""
        return not all(slot.disturbed for slot in self.slots)

    @contextmanager
    def ailing(self, slot: Slot) -> Iterator[None]:
        """Something ails the slot while the block runs."""
        slot.disturbed = True
        try:
            yield
        finally:
            slot.disturbed = False

    async def kill(self, slot: Slot) -> None:
        """kill -9, and another one."""
        slot.process.kill()
        await asyncio.to_thread(slot.process.wait)
        self._launch(slot)

    def replace(self, slot: Slot) -> None:
        """SIGTERM, and another one that starts while the old one drains."""
        self.later(self._drained(slot.process, slot.log))
        self._launch(slot)

    @asynccontextmanager
    async def frozen(self, slot: Slot) -> AsyncIterator[None]:
        """SIGSTOP, SIGCONT."""
        slot.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            slot.process.send_signal(signal.SIGCONT)

    async def close(self) -> None:
        """SIGTERM to all; look into what they have logged."""
        await self.settle()
        await asyncio.gather(*(self._drained(slot.process, slot.log) for slot in self.slots))
        for slot in self.slots:
            slot.proxy.close()
        for log in self._logs:
            text = log.read_text(encoding="utf-8", errors="replace")
            said = {found[1] or found[0] for found in _TROUBLE.finditer(text)}
            self.findings += [f"{log.name}: {line}" for line in sorted(said)]

    def later(self, work: object) -> None:
        """Let it go on beside everything else until `settle`."""
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._background.add(task)

    async def settle(self) -> None:
        """Wait for all that goes on; errors of it are raised."""
        while self._background:
            await self._background.pop()

    def check(self) -> None:
        """Start what has ended by itself again, and find that."""
        for slot in self.slots:
            if slot.process.poll() is not None and not slot.disturbed:
                last = slot.log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
                self.findings.append(f"{slot.log.name} ended by itself: {slot.process.returncode}, {last[-200:]}")
                self._launch(slot)

    def _launch(self, slot: Slot) -> None:
        slot.disturbed = True
        slot.log = self._folder / f"worker-{len(self._logs)}.log"
        self._logs.append(slot.log)
        with slot.log.open("wb") as log:
            slot.process = subprocess.Popen(
                [_WORKER, "run", *self._flags, "--metrics-port", "0", "--redis", slot.proxy.url],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        self.later(self._await_ready(slot))

    async def _await_ready(self, slot: Slot) -> None:
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while b"serving " not in slot.log.read_bytes():
            if slot.process.poll() is not None:
                last = slot.log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
                # It asks Redis before it begins, and says in one line that it is not there.
                if slot.process.returncode != 3:
                    self.findings.append(f"{slot.log.name} did not start: {slot.process.returncode}, {last[-200:]}")
                await asyncio.sleep(1)
                self._launch(slot)
                return
            if asyncio.get_running_loop().time() > deadline:
                self.findings.append(f"{slot.log.name} does not serve after {_START_SECONDS:g} s")
                return
            await asyncio.sleep(0.1)
        slot.disturbed = False

    async def _drained(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        process.terminate()
        try:
            code = await asyncio.to_thread(process.wait, _DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            self.findings.append(f"{log.name} is not gone {_DRAIN_SECONDS:g} s after SIGTERM")
            process.kill()
            return
        if code != 0:
            self.findings.append(f"{log.name} ended with exit code {code} after SIGTERM")
