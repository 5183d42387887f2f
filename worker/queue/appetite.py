"""How much work a worker takes on: enough to keep its engine busy, and no more than it will soon begin."""

import asyncio
import math

from producer.record.jobs import SHARD_ROWS


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
        #: Taken for each row while it is in the engine.
        self.in_engine = asyncio.Semaphore(self.rows)
        self._waiting = 0
        self._hungry = asyncio.Event()

    async def hunger(self) -> None:
        """Returns when another shard is wanted, and counts `SHARD_ROWS` as waiting until `waits` corrects it."""
        while self._waiting >= SHARD_ROWS:
            self._hungry.clear()
            await self._hungry.wait()
        self.waits(SHARD_ROWS)

    def waits(self, rows: int) -> None:
        """So many rows more (or, negative, fewer) are claimed and not yet in the engine."""
        self._waiting += rows
        if self._waiting < SHARD_ROWS:
            self._hungry.set()
