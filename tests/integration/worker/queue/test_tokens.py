"""arq's loop over tokens: crowded, damaged, interrupted."""

import asyncio
import json
import logging
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix, job_key_prefix
from prometheus_client import CollectorRegistry
from redis.exceptions import ConnectionError as RedisConnectionError

from worker.metrics import Metrics
from worker.queue import tokens
from worker.queue.health import RedisHealth
from worker.queue.tokens import Tokens

GOOD = json.dumps({"t": None, "f": "run_shard", "a": [], "k": {}, "et": 1}).encode()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[ArqRedis]:
    async with tokens.connect(redis_url, "target") as client:
        yield client


async def add(redis: ArqRedis, token: bytes, payload: bytes = GOOD, score: float = 1) -> None:
    await redis.set(job_key_prefix.encode() + token, payload)
    await redis.zadd(redis.default_queue_name, {token: score})


class Running:
    """Tokens at work; `seen` are those that ran."""

    def __init__(self, redis: ArqRedis, work: Callable[[], Awaitable[None]] | None = None, slots: int = 3) -> None:
        self.seen: list[str] = []
        self._work = work
        metrics = Metrics(CollectorRegistry())
        self.tokens = Tokens(
            redis, served="target", slots=slots, run_token=self._run, metrics=metrics, health=RedisHealth(metrics)
        )

    async def _run(self, token: str) -> None:
        self.seen.append(token)
        if self._work is not None:
            await self._work()

    async def until(self, check: Callable[[], Awaitable[bool]]) -> None:
        running = asyncio.create_task(self.tokens.run())
        async with asyncio.timeout(10):
            while not await check():
                assert not running.done(), running
                await asyncio.sleep(0.01)
        await self.tokens.drain()
        await running


async def test_garbage_among_the_tokens_neither_runs_nor_stops_anybody(
    redis: ArqRedis, caplog: pytest.LogCaptureFixture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, ...]:
            return open, (str(mark), "w")

    mark = tmp_path_factory.mktemp("attack") / "ran"
    garbage = {
        b"pickle": pickle.dumps({"t": None, "f": "run_shard", "a": (Attack(),), "k": {}, "et": 1}),
        b"text": b"garbage",
        b"list": b"[]",
        b"types": json.dumps({"t": "x", "f": "run_shard", "a": [], "k": {}, "et": "y"}).encode(),
        b"deep": b"[" * 100_000,
        b"name": json.dumps({"t": None, "f": "other", "a": [], "k": {}, "et": 1}).encode(),
        b"arguments": json.dumps({"t": None, "f": "run_shard", "a": [1, 2], "k": {}, "et": 1}).encode(),
        b"\xff\xfe\x00": GOOD,
        b"early": GOOD,
        b"infinite": GOOD,
    }
    for token, payload in garbage.items():
        await add(redis, token, payload, score=float("-inf") if token == b"infinite" else 1)
    await redis.zadd(redis.default_queue_name, {b"no payload": 1})
    await add(redis, b"later", score=1e15)

    async def empty() -> bool:
        return await redis.zcard(redis.default_queue_name) == 0

    running = Running(redis)
    await add(redis, b"good")
    await running.until(lambda: _seen(running, {"good", "early", "infinite"}))
    assert not mark.exists()
    assert {"good", "early", "infinite"} <= set(running.seen)


async def _seen(running: Running, wanted: set[str]) -> bool:
    return wanted <= set(running.seen)


async def test_a_free_token_is_found_among_hundreds_that_run_elsewhere(redis: ArqRedis) -> None:
    for number in range(300):
        await add(redis, b"%d" % number)
        await redis.set(f"{in_progress_key_prefix}{number}", 1, ex=60)
    await add(redis, b"free", score=2)
    running = Running(redis)
    await running.until(lambda: _seen(running, {"free"}))
    assert running.seen == ["free"]


async def test_tokens_that_run_go_on_when_the_loop_loses_redis(
    redis: ArqRedis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    running = Running(redis, gate.wait, slots=2)  # type: ignore[arg-type]
    broken = asyncio.Event()
    real = redis.zrangebyscore

    async def zrangebyscore(*args: object, **options: object) -> object:
        if running.seen == ["first"] and not broken.is_set():
            broken.set()
            await redis.delete(in_progress_key_prefix + "first")  # as if its mark had run out meanwhile
            await add(redis, b"second", score=2)
            raise RedisConnectionError("gone")
        return await real(*args, **options)

    monkeypatch.setattr(redis, "zrangebyscore", zrangebyscore)
    await add(redis, b"first")

    async def both() -> bool:
        if "second" in running.seen:
            gate.set()
        return gate.is_set()

    with caplog.at_level(logging.INFO):
        await running.until(both)
    assert running.seen == ["first", "second"]
    assert "Traceback" not in caplog.text
    assert caplog.text.count("Redis is away") == caplog.text.count("Redis is back") == 1
    assert await redis.zcard(redis.default_queue_name) == 0
    assert await redis.keys("arq:*") == []


async def test_a_worker_killed_with_a_token_leaves_nothing_that_stays(redis: ArqRedis) -> None:
    await add(redis, b"mine")
    left: set[bytes] = set()

    async def look() -> None:
        left.update(await redis.keys("arq:*"))

    running = Running(redis, look)

    async def ran() -> bool:
        return bool(left)

    await running.until(ran)
    assert left == {b"arq:job:mine", b"arq:in-progress:mine"}
