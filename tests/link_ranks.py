"""Ranks of a gloo link and relay in processes of their own, told what to do from here."""

import multiprocessing
import os
import signal
import time
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from worker.minedraft.link import GlooLink, LinkError
from worker.minedraft.relay import FirstVerifier, OtherVerifier, Relay

#: More than any of it takes on a busy machine, the import of vLLM included (seconds).
PATIENCE_S = 120.0
DRAFTS = 3


class RankProcess:
    """A process that has one end of a link at a time.

    Attributes:
        asked: how much it was asked to do of which the result has not been taken.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.asked = 0

    def begin(self, method: str, *arguments: Any) -> None:
        """Let it call a method of its end, with tensors as lists, or one of `_Ends`."""
        self.asked += 1
        self._pipe.send((method, arguments))

    def result(self) -> tuple[Any, float]:
        """What came of it, tensors as lists and a `LinkError` as itself, and how long it took (seconds)."""
        assert self._pipe.poll(PATIENCE_S)
        value, seconds = self._pipe.recv()
        self.asked -= 1
        assert not isinstance(value, str), value
        return value, seconds

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method and return what came of it."""
        self.begin(method, *arguments)
        return self.result()[0]

    def freeze(self) -> None:
        """Let it neither do nor answer anything."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def end(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.join()
        self._pipe.close()


def connect(ranks: list[RankProcess], folder: Path, deadline_s: float) -> list[Any]:
    """Let two processes meet as the ends of a link, or one alone; what came of it: None or a `LinkError`."""
    return together(ranks, "link", folder, deadline_s, [(rank,) for rank in range(len(ranks))])


def start(ranks: list[RankProcess], folder: Path, deadline_s: float) -> list[Any]:
    """Let verifiers, and a drafter, the last one, meet as in an engine; what came of it."""
    return together(ranks, "start", folder, deadline_s, [(rank, len(ranks) - 1) for rank in range(len(ranks))])


def rejoin(first: RankProcess, drafter: RankProcess, folder: Path, deadline_s: float) -> list[Any]:
    """Let the first verifier go on with another drafter; what came of it."""
    return together([first, drafter], "rejoin", folder, deadline_s, [(0,), (1,)])


def together(
    ranks: list[RankProcess], method: str, folder: Path, deadline_s: float, arguments: list[tuple[int, ...]]
) -> list[Any]:
    for process, own in zip(ranks, arguments, strict=True):
        process.begin(method, str(folder / method), timedelta(seconds=deadline_s), *own)
    return [process.result()[0] for process in ranks]


class _Ends:
    """What a process has: one end at a time."""

    def __init__(self) -> None:
        self.end: Any = None
        self._relay: Relay | None = None
        self._lost: list[str] = []

    def link(self, address: str, deadline: timedelta, rank: int) -> None:
        """Have an end of a link."""
        self.end = GlooLink.connect(address, rank, DRAFTS, deadline)

    def start(self, address: str, deadline: timedelta, rank: int, verifiers: int) -> None:
        """Have what a verifier has, or the drafter."""
        self._relay, self._lost = None, []
        if rank < verifiers:
            self._relay = Relay.connect(address, rank, verifiers, DRAFTS, deadline)
        if rank == 0:
            self._first(address, deadline)
        elif rank == verifiers:
            self.link(address, deadline, GlooLink.DRAFTER)
        else:
            assert self._relay is not None
            self.end = OtherVerifier(self._relay)

    def rejoin(self, address: str, deadline: timedelta, rank: int) -> None:
        """Have a new link, as the first verifier or the drafter."""
        if rank:
            self.link(address, deadline, GlooLink.DRAFTER)
        else:
            self.end.close()
            self._first(address, deadline)

    def lost(self) -> list[str]:
        """Why the first verifier had to go on without a drafter, each time."""
        return self._lost

    def _first(self, address: str, deadline: timedelta) -> None:
        link = GlooLink.connect(address, GlooLink.FIRST, DRAFTS, deadline)
        self.end = FirstVerifier(link, self._relay, DRAFTS, lambda error: self._lost.append(str(error)))


def _serve(pipe: Connection) -> None:
    import_module("vllm.distributed.utils")  # seconds, which would be missing from the first deadline
    ends = _Ends()
    while True:
        method, arguments = pipe.recv()
        began = time.monotonic()
        value: Any = None
        try:
            if hasattr(ends, method):
                value = getattr(ends, method)(*arguments)
            elif method.startswith("send"):
                getattr(ends.end, method)(torch.tensor(arguments[0]))
            else:
                value = getattr(ends.end, method)(*arguments)
        except LinkError as error:
            value = error
        except Exception as error:
            value = repr(error)
        pipe.send((value.tolist() if isinstance(value, torch.Tensor) else value, time.monotonic() - began))
