"""A shard that nobody takes over is a failure, whoever had it."""

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from chaos.storm import measure
from chaos.storm.measure import Meter
from chaos.storm.progress import Progress
from redis.asyncio import Redis


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as made:
        await made.zadd("minedraft:leases", {"a 0": 1, "a 1": 1, "a 2": 1, "a 3": 1})
        await made.hset("minedraft:job:a:epochs", mapping={"0": 1, "1": 1, "2": 1, "3": 1})
        yield made


async def test_shards_of_the_living_and_the_dead(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet: Any = SimpleNamespace(at_work=True)
    monkeypatch.setattr(measure, "_GIVE_UP_SECONDS", 1.5)
    meter = Meter(redis, Progress(redis, 1), fleet)
    held = await meter.snapshot()
    assert len(held) == 4
    watching = asyncio.create_task(meter.reclaimed(held, time.monotonic(), calm=True))
    await redis.zadd("minedraft:leases", {"a 0": 2})  # renewed: a living worker's
    for shard in (1, 2):  # taken back, and one of them claimed again; nobody even takes back shard 3
        await redis.zrem("minedraft:leases", f"a {shard}")
        await redis.hincrby("minedraft:job:a:lost", str(shard), 1)
    await redis.hincrby("minedraft:job:a:epochs", "1", 1)
    await watching
    assert len(meter.measures.reclaimed) == len(meter.measures.reclaimed_calm) == 1
    assert sorted(meter.measures.never) == ["a 2", "a 3"]
    assert meter.measures.kills_in_calm == 1
