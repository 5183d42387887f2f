"""How much a worker takes on."""

import asyncio

import pytest

from producer.record.models import SHARD_ROWS
from worker.queue.appetite import Appetite


@pytest.mark.parametrize("capacity", [1, 2, 16, 64, 512])
def test_the_engine_has_a_next_row_ready_and_not_many_more(capacity: int) -> None:
    appetite = Appetite(capacity)
    assert capacity < appetite.rows <= capacity * 1.25 + 2
    assert appetite.slots * SHARD_ROWS >= 2 * appetite.rows


async def test_hunger_ends_with_a_shard_in_waiting_and_comes_back_when_it_is_begun() -> None:
    appetite = Appetite(16)
    await appetite.hunger()
    assert not await _hungry(appetite)
    appetite.waits(-1)
    assert await _hungry(appetite)


async def test_an_empty_claim_leaves_the_worker_hungry() -> None:
    appetite = Appetite(16)
    for _ in range(3):
        await appetite.hunger()
        appetite.waits(-SHARD_ROWS)
    assert await _hungry(appetite)


async def test_of_many_that_wait_one_claims() -> None:
    appetite = Appetite(16)
    waiting = [asyncio.create_task(appetite.hunger()) for _ in range(5)]
    await asyncio.sleep(0.01)
    assert sum(task.done() for task in waiting) == 1
    appetite.waits(-SHARD_ROWS)
    await asyncio.sleep(0.01)
    assert sum(task.done() for task in waiting) == 2
    for task in waiting:
        task.cancel()


async def test_who_is_alone_waits_for_the_others_and_keeps_them_out() -> None:
    appetite = Appetite(16)
    alone: list[str] = []

    async def suspect(name: str) -> None:
        async with appetite.alone():
            alone.append(name)
            assert not await _hungry(appetite)
            appetite.waits(-SHARD_ROWS)
            assert not await _hungry(appetite)
            alone.append(name)

    for _ in range(2):
        await appetite.hunger()
        appetite.waits(-SHARD_ROWS)
    suspects = [asyncio.create_task(suspect(name)) for name in "ab"]
    await asyncio.sleep(0.01)
    assert not await _hungry(appetite)
    for _ in range(2):
        assert alone == []
        appetite.over()
        await asyncio.sleep(0.005)
    async with asyncio.timeout(5):
        await asyncio.gather(*suspects)
    assert alone == ["a", "a", "b", "b"]
    assert await _hungry(appetite)


async def test_a_suspect_that_gives_up_waiting_lets_the_others_in_again() -> None:
    appetite = Appetite(16)
    await appetite.hunger()
    appetite.waits(-SHARD_ROWS)

    async def suspect() -> None:
        async with appetite.alone():
            raise AssertionError

    waiting = asyncio.create_task(suspect())
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert await _hungry(appetite)


async def _hungry(appetite: Appetite) -> bool:
    try:
        await asyncio.wait_for(appetite.hunger(), 0.01)
    except TimeoutError:
        return False
    return True
