"""Ranks of a gloo link in processes of their own, told what to do from here."""

import multiprocessing
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from worker.minedraft.link import GlooLink, LinkError

#: More than any of it takes on a busy machine, the import of vLLM included (seconds).
PATIENCE_S = 120.0


class RankProcess:
    """A process that has one end of a link at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, method: str, *arguments: Any) -> None:
        """Let it call a method of its link, with tensors as lists; `connect` makes the link."""
        self._pipe.send((method, arguments))

    def result(self) -> tuple[Any, float]:
        """What came of it, tensors as lists and a `LinkError` as itself, and how long it took (seconds)."""
        assert self._pipe.poll(PATIENCE_S)
        value, seconds = self._pipe.recv()
        assert not isinstance(value, str), value
        return value, seconds

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method and return what came of it."""
        self.begin(method, *arguments)
        return self.result()[0]

    def end(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.join()
        self._pipe.close()


def connect(ranks: list[RankProcess], folder: Path, deadline_s: float, *, missing: int = 0) -> list[Any]:
    """Let processes meet as ranks 0, 1, ...; what came of it, for each: None or a `LinkError`."""
    for rank, process in enumerate(ranks):
        process.begin("connect", str(folder / "link"), rank, len(ranks) + missing - 1, 3, timedelta(seconds=deadline_s))
    return [process.result()[0] for process in ranks]


def _serve(pipe: Connection) -> None:
    link: GlooLink | None = None
    while True:
        method, arguments = pipe.recv()
        began = time.monotonic()
        value: Any = None
        try:
            if method == "connect":
                link = GlooLink.connect(*arguments)
            elif method.startswith("send"):
                getattr(link, method)(torch.tensor(arguments[0], dtype=torch.int32))
            else:
                value = getattr(link, method)(*arguments)
        except LinkError as error:
            value = error
        except Exception as error:
            value = repr(error)
        pipe.send((value.tolist() if isinstance(value, torch.Tensor) else value, time.monotonic() - began))
