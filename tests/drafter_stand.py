"""A keeper of drafters whose processes are made up."""

import os
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace as Thing
from typing import Any

from worker.backoff import Backoff
from worker.minedraft.drafter_keeper import Call, DrafterKeeper
from worker.minedraft.names import RankDied
from worker.minedraft.presence import Presence, State

#: More than anything here takes (seconds).
LONG_S = 20.0
SETUP = [Call("load", (1,), {}), Call(b"a pickled function", (), {"a": 2})]


class Drafter:
    """A process. Its pipe closes when it ends.

    Args:
        hold: it is ready when this is set.
    """

    def __init__(self, hold: threading.Event | None = None) -> None:
        self.hold = hold
        self.told: list[tuple[str | bytes, bool]] = []
        self.stuck = False  # and takes no calls
        self.replied = 0
        self.ended_by_us = False
        sentinel, self._open = os.pipe()
        self._dead = threading.Event()
        self.proc = Thing(sentinel=sentinel, kill=self.die)

    def die(self) -> None:
        if not self._dead.is_set():
            self._dead.set()
            os.close(self._open)

    def ready(self) -> None:
        while self.hold is not None and not self.hold.wait(0.01):
            if self._dead.is_set():
                raise EOFError("it has closed its pipe")

    def call(self, method: str | bytes, args: object, kwargs: object, *, replies: bool) -> None:
        if self.stuck:
            raise RankDied("it takes no calls")
        self.told.append((method, replies))

    def reply(self) -> object:
        if self._dead.is_set():
            raise EOFError("no reply")
        self.replied += 1
        return None

    def alive(self) -> bool:
        return not self._dead.is_set()

    def ended(self) -> str:
        return "minedraft::drafter was killed by signal 9"

    def end(self) -> None:
        self.die()
        self.ended_by_us = True


class Waits(Backoff):
    """Notes its delays, none of which is long, and when it starts over."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def next(self) -> float:
        self.said.append("wait")
        return 0.001

    def reset(self) -> None:
        self.said.append("start over")


class Stand:
    """A keeper, and all processes that it has started."""

    def __init__(self) -> None:
        self.made: list[Drafter] = []
        self.hold: threading.Event | None = None  # of those that are made from now on
        self.refused = 0  # how many times more none can be made
        self.failed: list[str] = []
        self.waits = Waits()
        self.presence = Presence(None)
        self.presence.state = State.ABSENT
        self.keeper = DrafterKeeper(self._make, self.presence, self.failed.append, self.waits)

    def _make(self) -> Any:
        if self.refused:
            self.refused -= 1
            raise OSError("no room for its queue")
        self.made.append(Drafter(self.hold))
        return self.made[-1]

    def serving(self) -> "Stand":
        """The engine is up."""
        self.keeper.watch()
        for call in SETUP:
            self.keeper.call(call, replies=True)
        self.keeper.call(Call("meet", (), {}), replies=False)
        self.keeper.serve(outlived=True)
        return self

    def await_made(self, count: int) -> Drafter:
        """The newest process, when there have been so many."""
        until(lambda: len(self.made) >= count)
        assert len(self.made) == count
        return self.made[-1]

    def await_waiting(self) -> None:
        until(lambda: self.presence.state is State.WAITING)

    def await_joined(self) -> Drafter:
        """The next one, which has been let in."""
        self.await_waiting()
        self.presence.state = State.JOINING
        assert self.keeper.take_next() is not None
        return self.made[-1]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
