"""Tokens, leases and results of whole workers on a real Redis, with engines that are scripted."""

import asyncio
import json

import pytest
from arq.constants import in_progress_key_prefix
from queue_bench import Bench, ScriptedEngine, lines, never, state, submit, until_true
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from producer.record import leases
from producer.record.keys import key
from producer.record.models import SHARD_ROWS, JobState, Row


async def test_renewing_keeps_leases_and_tokens(worker: Bench) -> None:
    worker.engine.script = never
    job = await submit(worker.redis, 4)
    await worker.redis.set(in_progress_key_prefix + "t", "1", px=500)
    running = asyncio.create_task(worker.runner.run_token("t"))
    await until_true(lambda: len(worker.engine.begun) == 4)
    await worker.redis.zadd(key("leases"), {f"{job} 0": 1})
    await worker.keeper.renew()
    assert await leases.reap(worker.redis) == []
    assert await worker.redis.pttl(in_progress_key_prefix + "t") > 5000
    worker.runner.abandon()
    await running


async def test_results_wait_for_redis_and_are_counted_once(worker: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0
    real = leases.finish

    async def finish(redis: Redis, batches: object) -> list[int | None]:
        nonlocal tries
        tries += 1
        if tries <= 2:
            if tries == 2:
                await real(redis, batches)  # written, but the answer is lost on the way
            raise RedisConnectionError("away")
        return await real(redis, batches)

    monkeypatch.setattr(leases, "finish", finish)
    job = await submit(worker.redis, SHARD_ROWS - 1)
    staged = await submit(worker.redis, 1)
    await asyncio.gather(worker.runner.run_token("t"), worker.runner.run_token("u"))
    assert tries >= 3
    for each, rows in ((job, SHARD_ROWS - 1), (staged, 1)):
        done = await state(worker.redis, each)
        assert (done.state, done.done) == (JobState.COMPLETED, rows)
    assert worker.idle()


async def test_tokens_are_topped_up_for_waiting_shards_and_no_further(worker: Bench) -> None:
    async with worker.tokens(2) as queue:
        await queue.top_up()
        assert await worker.redis.zcard(key("tokens", "target")) == 0
        await submit(worker.redis, 3 * SHARD_ROWS)
        for _ in range(2):
            await queue.top_up()
            assert await worker.redis.zcard(key("tokens", "target")) == 3
        assert worker.metrics.queue_shards._value.get() == 3
        # Tokens that somebody runs do not count: their holder may wait, another worker must find one.
        for token in await worker.redis.zrange(key("tokens", "target"), 0, 1):
            await worker.redis.set(in_progress_key_prefix + token, "1")
        await submit(worker.redis, 30 * SHARD_ROWS)
        await queue.top_up()
        assert await worker.redis.zcard(key("tokens", "target")) == 2 + 2 * 2


async def test_nothing_on_arq_s_wire_is_pickle(worker: Bench) -> None:
    await submit(worker.redis, 1)
    async with worker.tokens(2) as queue:
        await queue.top_up()
    (name,) = await worker.redis.keys("arq:job:*")
    assert json.loads(await worker.redis.get(name))["f"] == "run_shard"


async def test_two_workers_answer_every_row_of_two_jobs_once_through_arq(worker: Bench) -> None:
    async def script(row: Row) -> None:
        await asyncio.sleep(0.001 * (row.index % 7))

    other = worker.new(ScriptedEngine(script))
    worker.engine.script = script
    writing = asyncio.create_task(other.buffer.run())
    ids = [await submit(worker.redis, 80), await submit(worker.redis, 83)]
    async with worker.tokens(worker.appetite.slots) as one, other.tokens(other.appetite.slots) as two:
        running = [asyncio.create_task(queue.run()) for queue in (one, two)]
        async with asyncio.timeout(20):
            while not all([(await state(worker.redis, job)).state.ended for job in ids]):
                await one.top_up()
                await asyncio.sleep(0.05)
        for each, queue, task in zip((worker, other), (one, two), running, strict=True):
            each.runner.drain()
            await queue.drain()
            await task
    for job, rows in zip(ids, (80, 83), strict=True):
        assert [line["custom_id"] for line in await lines(worker.redis, job)] == [f"r{n}" for n in range(rows)]
        assert (await state(worker.redis, job)).done == rows
    assert sum((worker.engine.begun + other.engine.begun).values()) == 163
    assert worker.engine.begun
    assert other.engine.begun
    assert worker.idle()
    assert other.idle()
    writing.cancel()
