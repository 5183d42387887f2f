"""Rows that come bit by bit, from an asynchronous iterable or from another thread, as a source of lines.

A source is read where the rows are parsed, which blocks. So whoever has the rows puts them into a `Feed`, and
a thread with an event loop of its own reads it.
"""

import asyncio
import queue
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from producer.errors import Refused
from producer.intake.in_memory import line_of
from producer.intake.lines import Line, TooLong

#: Rows that are handed over at once, and how many such portions may wait: a few megabytes in all.
_PORTION_ROWS = 256
_PORTION_BYTES = 1 << 20
_PORTIONS = 4

#: How often one who waits for room looks whether anybody still reads (seconds).
_LOOK_SECONDS = 0.01

T = TypeVar("T")


class Feed:
    """Rows that one thread puts in and another reads as lines, once. Memory is bounded: the faster one waits.

    Whoever puts rows in ends with `finish` or `break_off`; the reader would wait for ever otherwise.
    """

    reopens = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._portions: queue.Queue[list[Line | TooLong] | None] = queue.Queue(_PORTIONS)
        self._portion: list[Line | TooLong] = []
        self._count = self._bytes = 0
        self._is_read, self._is_broken = True, False

    def fill(self, rows: Iterable[Any]) -> None:
        """Put in all of these rows, until nobody reads any more; blocks while there is no room.

        Raises:
            Refused: one of them is no row.
        """
        try:
            for row in rows:
                if self._put(row):
                    self._hand_over()
                if not self._is_read:
                    break
        except BaseException:
            self.break_off()  # whether or not the reader can be cancelled
            raise
        self._finish()

    async def fill_from(self, rows: AsyncIterable[Any]) -> None:
        """The same for rows of an asynchronous iterable; waits for room without blocking.

        Raises:
            Refused: one of them is no row.
        """
        async for row in rows:
            if self._put(row):
                await asyncio.to_thread(self._hand_over)
            if not self._is_read:
                break
        await asyncio.to_thread(self._finish)

    def break_off(self) -> None:
        """No more rows will come although there are more: the reader is told."""
        self._is_broken = True
        with suppress(queue.Full):
            self._portions.put_nowait(None)  # it may be waiting

    def leave(self) -> None:
        """Nobody will read any more."""
        self._is_read = False

    def lines(self) -> Iterator[Line | TooLong]:
        """Every row as a line, as they come.

        Raises:
            Refused: the rows broke off.
        """
        while True:
            portion = self._portions.get()
            if self._is_broken:
                raise Refused("the rows broke off before their end")
            if portion is None:
                return
            yield from portion

    def _put(self, row: Any) -> bool:
        """Add a row; True when a portion is full."""
        self._count += 1
        line = line_of(row, self._count)
        self._portion.append(line)
        self._bytes += len(line.data) if isinstance(line, Line) else 0
        return len(self._portion) >= _PORTION_ROWS or self._bytes >= _PORTION_BYTES

    def _finish(self) -> None:
        self._hand_over()
        self._hand(None)

    def _hand_over(self) -> None:
        portion, self._portion, self._bytes = self._portion, [], 0
        self._hand(portion)

    def _hand(self, portion: list[Line | TooLong] | None) -> None:
        while self._is_read:
            with suppress(queue.Full):
                self._portions.put(portion, timeout=_LOOK_SECONDS)
                break


async def read_apart(feed: Feed, read: Callable[[Feed], Coroutine[Any, Any, T]]) -> T:
    """Run what reads a feed in a thread of its own; a cancellation breaks the feed off."""
    pool = ThreadPoolExecutor(1, "producer-feed")
    reading = asyncio.get_running_loop().run_in_executor(pool, asyncio.run, read(feed))
    pool.shutdown(wait=False)
    reading.add_done_callback(lambda _: feed.leave())
    try:
        await asyncio.wait([reading])  # which does not cancel it
    except asyncio.CancelledError:
        await _broken_off(feed, reading)
        raise
    return reading.result()


async def pump(rows: AsyncIterable[Any], feed: Feed, read: Callable[[Feed], Coroutine[Any, Any, T]]) -> T:
    """Put rows into a feed while another thread reads it; returns what that makes of them.

    Raises:
        Refused: one of them is no row.
    """
    reading = asyncio.ensure_future(read_apart(feed, read))
    filling = asyncio.ensure_future(feed.fill_from(rows))
    try:
        await asyncio.wait({filling, reading}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            filling.result()
    except BaseException:
        await _cancelled(filling)
        await _broken_off(feed, reading)
        raise
    await _cancelled(filling)  # the rows may stall, and nobody reads them any more
    return await reading


async def _cancelled(filling: "asyncio.Future[None]") -> None:
    filling.cancel()
    await asyncio.gather(filling, return_exceptions=True)


async def _broken_off(feed: Feed, reading: "asyncio.Future[Any]") -> None:
    """Break a feed off, and wait until its reader has put its things in order."""
    feed.break_off()
    await asyncio.wait([reading])
    if not reading.cancelled():
        reading.exception()  # it says no more than that the rows broke off
