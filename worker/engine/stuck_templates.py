"""What to do when a row's chat template never ends.

Jinja's sandbox keeps a template from Python's insides; it bounds a single `range`, but not loops in loops. vLLM gives
up on a template some time after it was given to a pool of threads, however long it waited there for its turn, and
takes a new pool for the next one. What runs in the old pool would compute on, at the expense of all others, and would
keep the process from ending; what waits there still gets its turn.

So every piece of work that a row has done in vLLM's threads is known here: whose it is, where it runs, and since when.
A row is at fault when its own work has run for the whole limit. What a row leaves behind is stopped, and nothing else.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class EndlessTemplate(Exception):  # noqa: N818 - named for what was found
    """A row's own template ran for the whole limit."""


class TemplateStopped(BaseException):
    """Raised inside work that is to end; never seen outside of it. No `Exception`: templates' errors are caught."""


class Work:
    """One piece of a row's work in a thread: a template to render, a text to tokenize."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._stopped = False
        self._since = 0.0

    @property
    def since(self) -> float | None:
        """When it began, by the monotonic clock in seconds; None while it does not run."""
        with self._lock:
            return None if self._thread is None else self._since

    def run(self, work: Callable[[], T]) -> T:
        """Do it, in this thread.

        Raises:
            CancelledError: it was stopped before or while it ran.
            BaseException: whatever `work` raises.
        """
        try:
            self._begin()
            try:
                return work()
            finally:
                self._end()
        except TemplateStopped:
            raise CancelledError from None

    def stop(self) -> bool:
        """End it at its next step in Python, or before it begins; safe to call at any time, from any thread.

        Returns:
            Whether it ran.
        """
        with self._lock:
            runs, first = self._thread is not None, not self._stopped
            self._stopped = True
            if self._thread is not None and first:
                _raise_in(self._thread, TemplateStopped)
        return runs

    def _begin(self) -> None:
        with self._lock:
            if self._stopped:
                raise TemplateStopped
            self._since = time.monotonic()
            self._thread = threading.get_ident()

    def _end(self) -> None:
        with self._lock:
            self._thread = None
            # Nothing is sent from here on. What was sent has been raised, maybe in this very method (`run` sees to
            # it), or is forgotten: the thread's next work is somebody else's.
            _raise_in(threading.get_ident(), None)


class StuckTemplates:
    """Ends templates that nobody waits for any more, and knows whose they were.

    Args:
        renderer: vLLM's; whatever is given to its threads from now on is noted.
        limit_s: how long vLLM waits for a template, in seconds.
    """

    def __init__(self, renderer: Any, limit_s: float) -> None:
        self._limit_s = limit_s
        # vLLM's functions hold on to this object, and it outlives the pools within.
        pool = renderer._executor
        self._submit: Callable[..., Future[Any]] = pool.submit
        self._of_row: ContextVar[list[Work] | None] = ContextVar("the work of the row at hand", default=None)
        pool.submit = self._note

    async def watch(self, answering: Awaitable[T]) -> T:
        """Await all that vLLM does for one row. What it leaves in the threads, however it ends, is stopped.

        Raises:
            EndlessTemplate: vLLM gave up the row's template, and it has run for the whole limit.
            TimeoutError: vLLM gave up the row's template, but it has waited for others, or has come to an end.
            BaseException: whatever `answering` raises.
        """
        works: list[Work] = []
        token = self._of_row.set(works)
        try:
            return await answering
        except TimeoutError:
            if await self._endless(works):
                raise EndlessTemplate from None
            raise
        finally:
            self._of_row.reset(token)
            for work in works:
                work.stop()

    def _note(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """In place of the pool's `submit`, which vLLM calls in the row's own context."""
        call, works = partial(function, *args, **kwargs), self._of_row.get()
        if works is None:
            return self._submit(call)
        works.append(Work())
        return self._submit(works[-1].run, call)

    async def _endless(self, works: list[Work]) -> bool:
        """Whether one of these, which has just been given up, runs for the whole limit; it is stopped then."""
        for work in works:
            since = work.since
            if since is not None:
                # vLLM counted the time in the queue; the template may have the rest of its own.
                await asyncio.sleep(max(0.0, since + self._limit_s - time.monotonic()))
                if work.stop():
                    return True
        return False


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have a thread raise this at its next step in Python; None: forget what it was to raise and has not yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error)
    )
