"""A fault that found nothing to break says so; one that waited for something to break does it."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from chaos.storm import faults
from chaos.storm.faults import Faults
from chaos.storm.schedule import WAYS, Fault, Kind
from redis.asyncio import Redis

QUEUE = "tokens"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as made:
        yield made


async def _fails(*_: object) -> bool:
    return False


def _faults(redis: Redis) -> Faults:
    nobody: Any = SimpleNamespace(client=redis, kill=_fails, urgent=_fails, cancelled=_fails)
    return Faults(nobody, nobody, nobody, nobody, nobody, nobody, queue=QUEUE, kill_producer=_fails)


def _fault(kind: Kind, way: str = "") -> Fault:
    return Fault(at=0.5, kind=kind, victim=0, seconds=60.0, part=0.1, way=way)


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *((Kind.TOKENS_LOST, way) for way in WAYS[Kind.TOKENS_LOST]),
        *((kind, "") for kind in (Kind.TOKENS_DOUBLED, Kind.TOKENS_DELAYED)),
    ],
)
async def test_tokens(kind: Kind, way: str, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_TOKENS_SECONDS", 0.3)
    assert not await _faults(redis).do(_fault(kind, way))
    monkeypatch.setattr(faults, "_TOKENS_SECONDS", 10.0)
    doing = asyncio.create_task(_faults(redis).do(_fault(kind, way)))
    await asyncio.sleep(0.2)
    await redis.set("arq:job:1", "payload")
    await redis.zadd(QUEUE, {"1": 1000})
    assert await doing
    assert await _all(redis) != ([("1", 1000.0)], 1)


async def _all(redis: Redis) -> tuple[Any, Any]:
    return await redis.zrange(QUEUE, 0, -1, withscores=True), await redis.exists("arq:job:1")


@pytest.mark.parametrize("kind", [Kind.KILL_PRODUCER, Kind.KILL_CONSUMER, Kind.URGENT_JOB, Kind.CANCEL_JOB])
async def test_what_others_do_is_told_by_them(kind: Kind, redis: Redis) -> None:
    assert not await _faults(redis).do(_fault(kind))


async def test_every_kind_can_be_done(redis: Redis) -> None:
    assert set(_faults(redis)._ways) == set(Kind)
