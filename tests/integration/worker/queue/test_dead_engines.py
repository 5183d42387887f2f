"""Engines that die, and rows that kill them."""

import asyncio
from contextlib import suppress

import pytest
from queue_bench import Bench, lines, state, submit, until_true

from producer.record import leases
from producer.record.keys import key
from producer.record.leases import CONDEMNED
from producer.record.models import CHAT_URL, SHARD_ROWS, JobState, Row
from producer.record.submission import Submission
from worker.engine.protocol import EngineDead


async def test_rows_whose_engine_died_run_again_and_the_attempt_is_counted(worker: Bench) -> None:
    async def script(row: Row) -> None:
        if row.index == 1 and worker.engine.begun[1] == 1:
            raise EngineDead("gone")

    worker.engine.script = script
    job = await submit(worker.redis, 3)
    await worker.runner.run_token("t")
    done = await state(worker.redis, job)
    assert (done.state, done.failed, done.attempts_lost) == (JobState.COMPLETED, 0, 1)
    assert worker.engine.begun == {0: 1, 1: 2, 2: 1}


async def test_an_engine_that_ends_with_its_worker_is_no_lost_attempt(worker: Bench) -> None:
    async def script(row: Row) -> None:
        if row.index == 1:
            worker.runner.abandon()
            raise EngineDead("closed")

    worker.engine.script = script
    job = await submit(worker.redis, 3)
    await worker.runner.run_token("t")
    assert (await state(worker.redis, job)).attempts_lost == 0
    claim = await leases.claim(worker.redis, served="target", lease_ms=1000)
    assert claim is not None
    assert 1 in [row.index for row in claim.rows]


@pytest.mark.parametrize("others", [0, 3 * SHARD_ROWS])
async def test_a_row_that_always_kills_its_engine_ends_as_an_error_and_takes_nobody_with_it(
    worker: Bench, others: int
) -> None:
    """One engine: whoever is in it when it dies dies with it."""
    poison, died = 5, asyncio.Event()
    inside: set[int] = set()

    async def script(row: Row) -> None:
        nonlocal died
        engine = died
        inside.add(row.index)
        try:
            if row.index == poison:
                await asyncio.sleep(0.005)
                engine.set()
                died = asyncio.Event()
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(engine.wait(), 0.01)
            if engine.is_set():
                companions.append(set(inside))
                raise EngineDead("died")
        finally:
            inside.discard(row.index)

    companions: list[set[int]] = []
    worker.engine.script = script
    job = await submit(worker.redis, SHARD_ROWS + others)
    async with asyncio.timeout(20):
        await asyncio.gather(*(worker.runner.run_token(f"t{number}") for number in range(3)))
    done = await state(worker.redis, job)
    assert (done.state, done.done, done.failed) == (JobState.COMPLETED, SHARD_ROWS + others, 1)
    error = (await lines(worker.redis, job))[poison]["error"]
    assert (error["code"], error["line"]) == ("poison_row", poison + 1)
    assert "5 attempts" in error["message"]
    assert worker.engine.begun[poison] == CONDEMNED
    assert companions[-1] == {poison}
    assert worker.idle()


async def test_while_there_is_no_engine_nothing_is_held_or_blamed(worker: Bench) -> None:
    async def script(row: Row) -> None:
        if row.index == 5 and worker.engine.begun[5] == 1:
            worker.engine.lives.clear()
            raise EngineDead("gone")

    worker.engine.script = script
    job = await submit(worker.redis, 4 * SHARD_ROWS)
    tokens_ = [asyncio.create_task(worker.runner.run_token(f"t{number}")) for number in range(2)]
    await until_true(lambda: not worker.engine.lives.is_set() and not worker.keeper._leases)
    assert await worker.redis.zcard(key("open", job)) == 4
    worker.engine.lives.set()
    await asyncio.gather(*tokens_)
    done = await state(worker.redis, job)
    assert (done.state, done.attempts_lost) == (JobState.COMPLETED, 1)
    assert worker.idle()


async def test_a_suspect_runs_alone_though_another_job_is_next_in_line(worker: Bench) -> None:
    inside: set[int] = set()
    alone: list[bool] = []
    ended: list[int] = []

    async def script(row: Row) -> None:
        inside.add(row.index)
        await asyncio.sleep(0.002)
        if row.index < SHARD_ROWS:
            alone.append(all(index < SHARD_ROWS for index in inside))
        inside.discard(row.index)
        ended.append(row.index)

    worker.engine.script = script
    await submit(worker.redis, SHARD_ROWS)
    for _ in range(2):
        claim = await leases.claim(worker.redis, served="target", lease_ms=60_000)
        assert claim is not None
        await leases.release(worker.redis, claim.lease, lost=True)
    staged = await Submission.begin(worker.redis, model="target", name="other")
    for index in range(SHARD_ROWS, 9 * SHARD_ROWS):
        row = Row(index, index + 1, f"r{index}", CHAT_URL, {"n": index})
        await staged.add(row, row.to_json())
    await staged.commit(staged.job_id, insist=True)
    await asyncio.gather(*(worker.runner.run_token(f"t{number}") for number in range(3)))
    assert len(ended) == 9 * SHARD_ROWS
    assert alone == [True] * SHARD_ROWS
    assert ended.index(0) < 4 * SHARD_ROWS  # it did not wait until the other job was done
