"""The processes of a two-batch engine, seen from outside."""

import os
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from leftovers import MARK, Leftovers
from shell import Shell, Worker

ENGINE, DRAFTER = "minedraft::engine", "minedraft::drafter"

#: What a worker logs when it has noticed that its engine died, and when it has another one.
DIED, BACK = "the engine died", "the engine is back"
#: What the engine logs when its drafter has ended: one that took part, one that waited to, one that was starting.
LOST = ("rows go on without drafts", "while it waited to join", f"{DRAFTER} cannot start")
#: What it logs when another one is ready, and when that one takes part, which it does as soon as there are rows.
READY, JOINED = f"another {DRAFTER} has started", f"{DRAFTER} takes part again"


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
    """Hit a process of the worker's engine; wait until that has been noticed.

    Without its drafter an engine goes on. After another process's death the worker starts another engine, and this
    waits until it has.

    Args:
        worker: its engine is up.
        name: of the process.
        number: the signal.
        notice: how long it may take to notice (seconds).
    """
    if name == DRAFTER:
        _strike_drafter(worker, number, notice)
        return
    died, back = worker.text().count(DIED), worker.text().count(BACK)
    began = time.monotonic()
    os.kill(ranks(worker.process.pid)[name], number)
    await_more(worker, DIED, died + 1, notice)
    noticed = time.monotonic()
    await_more(worker, BACK, back + 1, 180)
    print(f"{name}: noticed after {noticed - began:.1f} s, back after {time.monotonic() - noticed:.1f} s more")


def _strike_drafter(worker: Worker, number: int, notice: float) -> None:
    def lost() -> int:
        said = worker.text()
        return sum(map(said.count, LOST))

    await_true(lambda: DRAFTER in ranks(worker.process.pid), 120, worker.text)  # the next one may be starting
    before, began = lost(), time.monotonic()
    os.kill(ranks(worker.process.pid)[DRAFTER], number)
    await_true(lambda: lost() > before, notice, worker.text)
    print(f"{DRAFTER}: noticed after {time.monotonic() - began:.1f} s")


@contextmanager
def footprint(shell: Shell) -> Iterator[Leftovers]:
    """Give the shell's programs a temporary folder of their own, and watch what they leave."""
    # Not below the test's folder: the names of Unix sockets must be short.
    with tempfile.TemporaryDirectory(prefix="md-") as temp:
        mark = secrets.token_hex(8)
        shell.environment |= {"TMPDIR": temp, MARK: mark}
        left = Leftovers(mark, shell.folder, Path(temp))
        with left.followed():
            yield left
