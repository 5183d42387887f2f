"""A job's memory is estimated well, and as cheaply for a large job."""

import random

import pytest
from redis.asyncio import Redis

from producer.record import consume, jobs, leases
from producer.record.jobs import JobStatus
from producer.record.memory import memory
from producer.record.models import CHAT_URL, Outcome, Row
from producer.record.submission import Submission

ROWS = 6000


async def submitted(redis: Redis, rows: int) -> str:
    text = random.Random(1)
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(rows):
        row = Row(index, index + 1, f"r{index}", CHAT_URL, {"prompt": "x" * text.randrange(50, 1500)})
        await staged.add(row, row.to_json())
    return await staged.commit(staged.job_id, insist=False)


async def answer(redis: Redis, rows: int) -> None:
    while rows > 0 and (claim := await leases.claim(redis, served="target", lease_ms=60_000)):
        ends = [Outcome(row.index, "y" * (500 + row.index % 1000), failed=False) for row in claim.rows]
        await leases.finish(redis, [(claim.lease, ends)])
        rows -= len(ends)


async def found(redis: Redis, job: str) -> JobStatus:
    status = await jobs.status(redis, job)
    assert status is not None
    return status


async def used(redis: Redis) -> int:
    return int((await redis.info("memory"))["used_memory_dataset"])


async def test_the_estimate_is_near_the_truth_through_a_job_s_life(redis: Redis) -> None:
    warm = await submitted(redis, 100)  # scripts and the client's buffers
    await answer(redis, 100)
    assert (await found(redis, warm)).state.ended
    before = await used(redis)
    job = await submitted(redis, ROWS)

    async def compare() -> int:
        estimate = await memory(redis, await found(redis, job))
        assert estimate == pytest.approx(await used(redis) - before, rel=0.3)
        return estimate

    await compare()
    await answer(redis, ROWS // 2)
    await compare()
    await answer(redis, ROWS)
    full = await compare()
    while (batch := await consume.take(redis, job)) and batch.lines:
        await consume.trim(redis, job, batch)
    left = await memory(redis, await found(redis, job))
    assert left < 1000 < full / 100


async def test_it_costs_two_round_trips_of_some_samples(redis: Redis) -> None:
    job = await submitted(redis, ROWS)
    status = await found(redis, job)
    await redis.config_resetstat()
    await memory(redis, status)
    calls = {name: stats["calls"] for name, stats in (await redis.info("commandstats")).items()}
    assert sum(calls.values()) < 150, calls


async def test_a_job_that_is_gone_takes_nothing(redis: Redis) -> None:
    job = await submitted(redis, 20)
    status = await found(redis, job)
    await redis.flushall()
    assert await memory(redis, status) == 0
