"""Keeps an engine in drafters: watches the one that works, and starts another one when it is lost.

A drafter that is lost takes no row with it. Rows go on without drafts, and exactly, while the next one loads its model
and is told, call by call, what the first one was told when the engine started. Then it waits until the scheduler lets
it join (`presence.py`).
"""

import logging
import multiprocessing.connection
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from worker.backoff import Backoff
from worker.engine.vllm_plugin import forget_errors
from worker.minedraft import names
from worker.minedraft.drafter_process import DrafterProcess
from worker.minedraft.presence import Presence, State

#: How often it is looked whether the first verifier has given up (seconds).
_LOOK_S = 0.1
#: How long a start that goes on after its process has died may take to notice (seconds).
_HANG_S = 5.0
#: How long a drafter may take to start (seconds): longer than to load and to compile any model.
_START_S = 1800.0
#: A drafter that lived this long (seconds) was healthy: the next one starts soon.
_HEALTHY_S = 60.0

log = logging.getLogger("vllm.minedraft.drafters")


class Call(NamedTuple):
    """What a drafter was told while the engine started."""

    method: str | bytes
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class DrafterKeeper:
    """One for each engine.

    Args:
        make: starts a drafter's process.
        presence: where it is said whether there is one.
        failed: is told how the first drafter ended, when the engine was still starting.

    Attributes:
        current: the drafter that gets all calls; None while there is none.
        serving: whether the engine is up and goes on when its drafter is lost.
    """

    def __init__(
        self,
        make: Callable[[], DrafterProcess],
        presence: Presence,
        failed: Callable[[str], None],
        backoff: Backoff | None = None,
    ) -> None:
        self._make, self._presence, self._failed = make, presence, failed
        self._backoff = backoff or Backoff(first=0.5, most=60.0)
        self._setup: list[Call] = []
        self.serving = False
        self._closing = threading.Event()
        self._next: DrafterProcess | None = None
        self._lost: list[DrafterProcess] = []
        self._since = 0.0  # when the current one began to take part
        self._handover = threading.Lock()  # of `current` and `_next`
        self._watcher = threading.Thread(target=self._watch, name="drafter-keeper", daemon=True)
        self.current: DrafterProcess | None = make()

    def watch(self) -> None:
        """The first drafter is up: look after it from now on."""
        self._watcher.start()

    def call(self, call: Call, *, replies: bool) -> DrafterProcess | None:
        """Have the drafter do something.

        Args:
            call: what.
            replies: whether every rank replies; calls of that kind, made while the engine starts, are made again to
                those that come later.

        Returns:
            Whom to ask for the reply; None when there is no drafter, or when it is given up.

        Raises:
            RankDied: it has taken no call for too long, and the engine does not go on without it.
        """
        if replies and not self.serving:
            self._setup.append(call)
        while self._lost:  # not by the watcher: this thread may have been writing into their queues
            self._lost.pop().end()
        drafter = self.current
        if drafter is None or self._presence.given_up:  # then it is being killed, and its queue may be full
            return None
        try:
            drafter.call(*call, replies=replies)
        except names.RankDied:
            if not self.serving:
                raise
            self._presence.give_up()
            return None
        return drafter

    def serve(self, *, outlived: bool) -> None:
        """The engine is up.

        Args:
            outlived: whether it goes on when its drafter is lost; otherwise that is its end, as while it started.
        """
        self._presence.state = State.PRESENT
        self.serving, self._since = outlived, time.monotonic()

    def take_next(self) -> DrafterProcess | None:
        """The drafter that waits to join becomes the current one; None when it has just been lost, too."""
        with self._handover:
            if self._next is None:
                # The scheduler may have let it join at the very moment at which it was lost.
                if self._presence.state is State.JOINING:
                    self._presence.state = State.ABSENT
                return None
            self._presence.join()  # first: that the one before was given up no longer counts
            self.current, self._next, self._since = self._next, None, time.monotonic()
            return self.current

    def end(self) -> DrafterProcess | None:
        """Start no more drafters; the current one is left, for the caller to end."""
        self._closing.set()
        if self._watcher.is_alive() and threading.current_thread() is not self._watcher:
            self._watcher.join(_HANG_S)
        for drafter in (*self._lost, self._next):
            if drafter is not None:
                drafter.end()
        self._lost, self._next = [], None
        self._presence.state = State.ABSENT
        return self.current

    def _watch(self) -> None:
        while not self._closing.is_set():
            try:
                self._look()
            except Exception:  # rows go on, so whatever it was must not be the end of looking
                log.exception("something is wrong with the drafters:")
                self._closing.wait(_HANG_S)

    def _look(self) -> None:
        drafter = self.current or self._next
        if drafter is None:
            self._start_another()
        elif self._ends(drafter):
            self._lose(drafter)

    def _ends(self, drafter: DrafterProcess) -> bool:
        """Whether it has ended, after a moment."""
        patience = _LOOK_S
        if drafter is self.current and self._presence.given_up and drafter.alive():
            log.error("%s has not answered in time, and is ended", names.DRAFTER)
            drafter.proc.kill()
            patience = _HANG_S
        return bool(multiprocessing.connection.wait([drafter.proc.sentinel], timeout=patience))

    def _lose(self, drafter: DrafterProcess) -> None:
        if self._closing.is_set():
            return
        how = drafter.ended()
        if not self.serving:
            self._closing.set()
            self._failed(how)
            return
        forget_errors()  # its own; the engine goes on
        with self._handover:
            self._presence.lose()
            self._lost.append(drafter)
            if drafter is self._next:
                self._next = None
                log.error("%s while it waited to join", how)
                return
            self.current = None
            if time.monotonic() - self._since > _HEALTHY_S:
                self._backoff.reset()
        log.error("%s: rows go on without drafts until another one has started", how)

    def _start_another(self) -> None:
        if self._closing.wait(self._backoff.next()):
            return
        began = time.monotonic()
        try:
            drafter = self._make()
        except Exception as error:  # no room for its queue, no more processes: later there may be
            log.error("%s cannot start: %s", names.DRAFTER, error)
            return
        failures: list[BaseException] = []

        def start() -> None:
            try:
                drafter.ready()
                for call in self._setup:
                    drafter.call(*call, replies=True)
                    drafter.reply()
            except Exception as error:
                failures.append(error)

        # vLLM's queues wait for ever for the greeting of a process that died before it; such a thread is left behind.
        starting = threading.Thread(target=start, name="drafter-start", daemon=True)
        starting.start()
        while starting.is_alive() and drafter.alive() and not self._closing.is_set():
            starting.join(_LOOK_S)
            if time.monotonic() - began > _START_S:
                drafter.proc.kill()
        starting.join(_HANG_S if not self._closing.is_set() else 0)
        if self._closing.is_set() or failures or starting.is_alive():
            how = failures[0] if failures else "it does not get ready"
            drafter.end()
            forget_errors()
            if not self._closing.is_set():
                log.error("%s cannot start: %s", names.DRAFTER, how)
            return
        log.warning("another %s has started in %.1f s, and waits to join", names.DRAFTER, time.monotonic() - began)
        with self._handover:
            self._next = drafter
            self._presence.state = State.WAITING
