"""Keeps an engine running: a dead one is replaced, and rows are refused meanwhile."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from producer.record.models import Answer, Row
from worker.backoff import Backoff
from worker.engine.protocol import Engine, EngineDead, EngineDown

logger = logging.getLogger(__name__)

#: An engine that lived this long (seconds) was healthy: the next failure starts with short delays again.
HEALTHY_S = 60.0
#: How long an engine whose rows failed may take to say that it is dead, and why (seconds).
REASON_S = 1.0


class EngineSupervisor:
    """Answers rows with the living engine. A row that an engine took down with it is the caller's again.

    Args:
        make: makes an engine that was never started.
        on_up: called with True when an engine can answer rows, with False when it no longer can.
        on_restart: called when an engine has been started in place of a dead one.
        backoff: delays between starts, in seconds.
    """

    def __init__(
        self,
        make: Callable[[], Engine],
        *,
        on_up: Callable[[bool], None] = lambda _: None,
        on_restart: Callable[[], None] = lambda: None,
        backoff: Backoff | None = None,
    ) -> None:
        self._make = make
        self._on_up, self._on_restart = on_up, on_restart
        self._backoff = backoff or Backoff(first=1.0, most=60.0)
        self._engine = make()
        self._ready = asyncio.Event()
        self._suspected = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._closed = False
        self.restarts = 0
        """Engines started in place of a dead one."""

    @property
    def capacity(self) -> int:
        """How many rows the engine runs at once."""
        return self._engine.capacity

    async def start(self) -> None:
        """Start the first engine; one that dies while starting is tried again, with growing delays.

        Raises:
            EngineStartError: it cannot start and trying again will not help.
        """
        while True:
            try:
                await self._engine.start()
                break
            except EngineDead as dead:
                await self._replace_after(f"the engine died while starting: {dead}")
        self._up()
        self._watcher = asyncio.create_task(self._watch(), name="engine-supervisor")

    async def answer(self, row: Row, job: str = "") -> Answer:
        """Answer one row, of `job` if that is known, on the engine that lives.

        Raises:
            RowError: this row can never be answered, or (`TransientError`) not now.
            EngineDead: the engine died with this row in it.
            EngineDown: none lives.
        """
        if self._closed or not self._ready.is_set():
            raise EngineDown("no engine lives at the moment")
        engine = self._engine
        try:
            return await engine.answer(row, job)
        except EngineDead:
            if engine is self._engine and not self._closed:
                self._ready.clear()
                self._suspected.set()  # it may have given up on this row without dying by itself
            raise

    async def ready(self) -> None:
        """Returns when an engine lives."""
        await self._ready.wait()

    async def close(self) -> None:
        """End the engine and stop replacing it."""
        self._closed = True
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        await self._engine.close()

    async def _watch(self) -> None:
        """Replace every engine that dies, for ever."""
        while True:
            started = time.monotonic()
            reason = await _first(self._engine.wait_dead(), self._suspected.wait())
            self._ready.clear()
            self._on_up(False)
            if time.monotonic() - started > HEALTHY_S:
                self._backoff.reset()
            died = time.monotonic()
            await self._replace_after(f"the engine died: {reason or 'it gave up on its rows'}")
            while not await self._try_start():
                pass
            self.restarts += 1
            self._on_restart()
            self._up()
            logger.warning("the engine is back after %.1f s", time.monotonic() - died)

    async def _try_start(self) -> bool:
        """Start the engine that `_engine` holds; False when it failed and another one is in its place."""
        try:
            await self._engine.start()
        except Exception as failed:
            # What starts once starts again: memory may be short, or a disk full, for a while.
            await self._replace_after(f"the engine could not be restarted: {failed}")
            return False
        return True

    async def _replace_after(self, what: str) -> None:
        """Say what happened, end the old engine, wait, and hold a new one that is not started yet."""
        delay = self._backoff.next()
        logger.error("%s; another one starts in %.1f s", what, delay)
        try:
            await self._engine.close()
        except Exception:
            logger.exception("the old engine did not close cleanly")
        await asyncio.sleep(delay)
        self._engine = self._make()

    def _up(self) -> None:
        self._suspected.clear()
        self._ready.set()
        self._on_up(True)


async def _first(death: Coroutine[Any, Any, str], suspicion: Coroutine[Any, Any, Any]) -> str:
    """The reason of death, or nothing when a suspicion was not followed by one."""
    told, suspected = asyncio.create_task(death), asyncio.create_task(suspicion)
    try:
        await asyncio.wait({told, suspected}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({told}, timeout=REASON_S)
        return told.result() if told.done() else ""
    finally:
        told.cancel()
        suspected.cancel()
