"""A thread with an event loop of its own, for code that blocks the loop it runs in."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopStopped(Exception):  # noqa: N818 - a state, not a fault
    """The thread was stopped before the work was done."""


class LoopThread:
    """Runs coroutines for callers in another event loop, which stays free.

    The thread is a daemon: a process that ends without `stop` does not hang on it.
    """

    def __init__(self, name: str) -> None:
        self._loop = _new_loop()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, run in the thread; cancelling the call cancels it there.

        Raises:
            LoopStopped: `stop` was called before `work` was done.
        """
        if self._stopped:
            work.close()
            raise LoopStopped
        future = asyncio.run_coroutine_threadsafe(_heard(work), self._loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._stopped and caller is not None and not caller.cancelling():
                raise LoopStopped from None
            raise

    async def stop(self) -> None:
        """Cancel what still runs and end the thread; safe to call twice."""
        if not self._stopped:
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()


async def _heard(work: Coroutine[Any, Any, T]) -> T:
    """Do `work`; an error that it makes of its own cancellation is for nobody, for the caller has gone."""
    try:
        return await work
    except Exception:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from None
        raise


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - comes with vLLM, and only with vLLM
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
