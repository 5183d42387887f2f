"""Duties that go on."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry
from redis.exceptions import ConnectionError as RedisConnectionError

from worker.metrics import Metrics
from worker.queue.health import RedisHealth
from worker.queue.periodic import every


@pytest.fixture
def health() -> RedisHealth:
    return RedisHealth(Metrics(CollectorRegistry()))


async def test_a_duty_that_redis_fails_is_tried_again_soon_and_goes_on(health: RedisHealth) -> None:
    tries = 0
    done = asyncio.Event()

    async def action() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise RedisConnectionError("gone")
        done.set()

    duty = asyncio.create_task(every(60, "duty", action, health))
    async with asyncio.timeout(5):
        await done.wait()
    assert tries == 3
    assert not duty.done()
    duty.cancel()


async def test_any_other_error_is_a_bug(health: RedisHealth) -> None:
    async def action() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await every(60, "duty", action, health)
