"""How much work a worker takes on: enough to keep its engine busy, and no more than it will soon begin."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from producer.record.models import SHARD_ROWS


class Appetite:
    """Admits rows to the engine and shards to the worker.

    The engine gets a few rows more than it runs at once, so that a finished row is followed by the next
    without a round trip; a new shard is claimed when fewer than one shard's rows wait here. What a dying
    worker leaves behind is therefore small, and another worker finds something to do.
    """

    def __init__(self, capacity: int) -> None:
        #: Rows inside the engine, running or next in line.
        self.rows = capacity + max(2, capacity // 4)
        #: Shards worked on at once, or waiting for their claim. Twice what the rows need: most of a shard's
        #: rows may have ended while its longest one goes on.
        self.slots = 2 * math.ceil(self.rows / SHARD_ROWS) + 1
        self._seats = asyncio.Semaphore(self.rows)
        self._waiting = 0
        self._shards = 0
        self._changed = asyncio.Event()
        self._open = True
        self._one_alone = asyncio.Lock()

    async def enter(self) -> None:
        """Returns when one more row may go into the engine; `leave` when it is out."""
        await self._seats.acquire()

    def leave(self) -> None:
        """A row that had entered is out of the engine."""
        self._seats.release()

    async def hunger(self) -> None:
        """Returns when another shard is wanted; `over` when it is given back or ended.

        Counts `SHARD_ROWS` as waiting until `waits` corrects it.
        """
        while not self._open or self._waiting >= SHARD_ROWS:
            await self._change()
        self._shards += 1
        self.waits(SHARD_ROWS)

    def over(self) -> None:
        """A shard that was wanted is ended, or there was none."""
        self._shards -= 1
        self._wake()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """For a shard that may take the worker down: begins when all others are over, lets none be wanted meanwhile.

        Counts `SHARD_ROWS` as waiting, as `hunger` does.
        """
        async with self._one_alone:
            self._open = False
            try:
                while self._shards:
                    await self._change()
                self.waits(SHARD_ROWS)
                yield
            finally:
                self._open = True
                self._wake()

    def waits(self, rows: int) -> None:
        """So many rows more (or, negative, fewer) are claimed and not yet in the engine."""
        self._waiting += rows
        if self._waiting < SHARD_ROWS:
            self._wake()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
