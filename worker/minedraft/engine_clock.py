"""The engine process's own stage clock: how long it schedules, and how long it takes in results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from worker.minedraft.stages import ENGINE, Stage, StageClock, ring_path


class EngineClock:
    """One record for each turn of the engine's loop, by the number of the call that it scheduled.

    With two calls in flight a result comes in after the next call has been scheduled: the record of call n then holds
    the time to take in the result of call n - 1. Where results come in and nothing is scheduled any more, there is
    another record of the last call.

    Args:
        folder: the engine's; None: keep nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._clock = StageClock(None if folder is None else ring_path(folder, ENGINE))
        self._call = 0
        self._open = False

    @contextmanager
    def scheduling(self) -> Iterator[Callable[[int], None]]:
        """A call is scheduled inside the block, which says its number, higher than those before."""
        self._begin()
        self._clock.start(Stage.SCHEDULE)
        yield self._number
        self._clock.stop(Stage.SCHEDULE)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """A result is taken in inside the block."""
        if not self._open:  # the last results come in when nothing is scheduled any more
            self._begin()
        self._clock.start(Stage.UPDATE)
        yield
        self._clock.stop(Stage.UPDATE)
        self._commit()

    def _begin(self) -> None:
        if self._open:  # two calls were scheduled in a row, to fill the queue
            self._commit()
        self._clock.begin(self._call)
        self._open = True

    def _number(self, call: int) -> None:
        self._call = call
        self._clock.call(call)

    def _commit(self) -> None:
        self._clock.commit()
        self._open = False
