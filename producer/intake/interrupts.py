"""Ctrl-C for a program that reads a file in between what its event loop does."""

import asyncio
import signal
from collections.abc import Iterator

from producer.intake.lines import Line, TooLong
from producer.intake.sources import Source


class Interrupts:
    """SIGINT and SIGTERM cancel the task that made this; a read, which may never end, they break off at once.

    Python's own handler would break off anything, the event loop in the middle of a write included: what it had sent
    it would send again.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._is_reading = False
        self._is_asked = False
        #: The task was cancelled for a signal.
        self.came = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def watched(self, source: Source) -> Source:
        """The same source, each of its reads broken off by a signal, which raises a `KeyboardInterrupt`."""
        return _Watched(source, self)

    def lines(self, source: Source) -> Iterator[Line | TooLong]:
        """As `Source.lines`."""
        lines = iter(source.lines())
        while True:
            self._is_reading = True
            try:
                if self._is_asked:
                    self._is_asked = False
                    raise KeyboardInterrupt
                line = next(lines, None)
            finally:
                self._is_reading = False
            if line is None:
                return
            yield line

    def _ask(self, *_: object) -> None:
        if self._is_reading:
            raise KeyboardInterrupt
        self._is_asked = True
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._is_asked:
            self._is_asked = False
            self.came = True
            self._task.cancel()


class _Watched:
    def __init__(self, source: Source, interrupts: Interrupts) -> None:
        self._source = source
        self._interrupts = interrupts
        self.name = source.name
        self.reopens = source.reopens

    def lines(self) -> Iterator[Line | TooLong]:
        return self._interrupts.lines(self._source)
