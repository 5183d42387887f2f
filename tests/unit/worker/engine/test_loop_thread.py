"""The other loop: results and errors come back, cancelling goes there, blocking stays there."""

import asyncio
import gc
import threading
import time

import pytest

from worker.engine.loop_thread import LoopStopped, LoopThread


async def test_results_and_errors_come_back() -> None:
    thread = LoopThread("other")

    async def name() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ValueError("no")

    assert await thread.run(name()) == "other"
    with pytest.raises(ValueError, match="no"):
        await thread.run(fail())
    await thread.stop()
    await thread.stop()
    with pytest.raises(LoopStopped):
        await thread.run(name())


async def test_cancelling_goes_there() -> None:
    thread, started, cancelled = LoopThread("other"), threading.Event(), threading.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    call = asyncio.create_task(thread.run(hang()))
    assert await asyncio.to_thread(started.wait, 5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(cancelled.wait, 5)
    await thread.stop()


async def test_an_error_made_of_a_cancellation_is_nobody_s(caplog: pytest.LogCaptureFixture) -> None:
    thread, started, ended = LoopThread("other"), threading.Event(), threading.Event()

    async def complain() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("the client went away") from None
        finally:
            ended.set()

    call = asyncio.create_task(thread.run(complain()))
    assert await asyncio.to_thread(started.wait, 5)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(ended.wait, 5)
    await thread.stop()
    gc.collect()
    assert not caplog.records


async def test_blocking_there_does_not_block_here() -> None:
    thread = LoopThread("other")

    async def block() -> None:
        time.sleep(0.2)  # noqa: ASYNC251

    call = asyncio.create_task(thread.run(block()))
    for _ in range(5):
        before = time.monotonic()
        await asyncio.sleep(0.01)
        assert time.monotonic() - before < 0.1
    await call
    await thread.stop()


async def test_stop_says_so_to_those_who_wait() -> None:
    thread = LoopThread("other")
    call = asyncio.create_task(thread.run(asyncio.sleep(60)))
    await asyncio.sleep(0.05)
    await thread.stop()
    with pytest.raises(LoopStopped):
        await call
