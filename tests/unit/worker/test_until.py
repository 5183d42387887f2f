"""Doing something until it must stop."""

import asyncio

import pytest

from worker.until import until


async def test_work_that_ends_is_done() -> None:
    assert await until(asyncio.sleep(0), asyncio.Event())


async def test_an_event_cancels_the_work() -> None:
    event, seen = asyncio.Event(), []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    asyncio.get_running_loop().call_later(0.01, event.set)
    assert not await until(work(), asyncio.Event(), event)
    assert seen == ["cancelled"]


async def test_errors_of_the_work_are_raised() -> None:
    async def work() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        await until(work(), asyncio.Event())


async def test_cancelling_it_cancels_the_work_and_leaves_no_task() -> None:
    task = asyncio.create_task(until(asyncio.sleep(60), asyncio.Event()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
