"""The record against a real Redis: what the Lua scripts promise."""

import asyncio
import json

import pytest
from redis.asyncio import Redis

from producer.record import fetch, jobs, leases
from producer.record.jobs import JobStatus
from producer.record.keys import key
from producer.record.leases import Claim
from producer.record.models import CHAT_URL, SHARD_ROWS, JobState, Outcome, Row, RowFault
from producer.record.submission import Submission, SubmissionLost

LEASE_MS = 60_000


def row(index: int) -> Row:
    return Row(index=index, line=index + 1, custom_id=f"r{index}", url=CHAT_URL, body={"n": index, "text": "\u2028é"})


async def submitted(redis: Redis, rows: int, *, model: str = "target", identity: str = "") -> str:
    staged = await Submission.begin(redis, model=model, name="test")
    for index in range(rows):
        await staged.add(row(index), row(index).to_json())
    return await staged.commit(identity or staged.job_id, insist=False)


async def stats(redis: Redis, job_id: str) -> JobStatus:
    found = await jobs.status(redis, job_id)
    assert found is not None
    return found


def end(each: Row, *, failed: bool = False) -> Outcome:
    line = json.dumps({"custom_id": each.custom_id})
    return Outcome(each.index, line, failed, prompt_tokens=3, completion_tokens=5)


async def claimed(redis: Redis, served: str = "target") -> Claim:
    found = await leases.claim(redis, served=served, lease_ms=LEASE_MS)
    assert found is not None
    return found


async def finished(redis: Redis, claim: Claim) -> int | None:
    return (await leases.finish(redis, [(claim.lease, [end(each) for each in claim.rows])]))[0]


async def expire(redis: Redis) -> None:
    for lease in await redis.zrange(key("leases"), 0, -1):
        await redis.zadd(key("leases"), {lease: 1})


async def test_rows_come_back_as_they_were_staged_in_input_order(redis: Redis) -> None:
    job = await submitted(redis, SHARD_ROWS + 3)
    first, second = await claimed(redis), await claimed(redis)
    assert [*first.rows, *second.rows] == [row(index) for index in range(SHARD_ROWS + 3)]
    assert first.lease.job_id == second.lease.job_id == job
    assert await leases.claim(redis, served="target", lease_ms=LEASE_MS) is None


async def test_a_job_is_invisible_until_it_is_committed(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Submission, "BUFFERED_BYTES", 1)  # every row is sent at once
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(3 * SHARD_ROWS):
        await staged.add(row(index), row(index).to_json())
    assert (await stats(redis, staged.job_id)).state is JobState.SUBMITTING
    assert await leases.claim(redis, served="target", lease_ms=LEASE_MS) is None
    await staged.commit("x", insist=False)
    assert (await stats(redis, staged.job_id)).state is JobState.QUEUED
    await claimed(redis)
    assert (await stats(redis, staged.job_id)).state is JobState.RUNNING


async def test_a_discarded_submission_leaves_nothing(redis: Redis) -> None:
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(40):
        await staged.add(row(index), "x" * 200_000)
        await staged.refuse(Outcome.failed_row(index, 1, None, RowFault("bad", "bad")))
    await staged.discard()
    assert await redis.keys() == []
    with pytest.raises(SubmissionLost):
        await staged.commit("x", insist=False)


async def test_what_a_dead_producer_staged_is_removed_by_the_next_submission(redis: Redis) -> None:
    left = await Submission.begin(redis, model="target", name="left")
    for index in range(20):
        await left.add(row(index), "x" * 200_000)
    alive = await Submission.begin(redis, model="target", name="alive")
    assert await jobs.status(redis, left.job_id) is not None
    await redis.zadd(key("staging"), {left.job_id: 1})
    await submitted(redis, 1)
    assert await redis.keys(f"*{left.job_id}*") == []
    with pytest.raises(SubmissionLost):
        await left.commit("x", insist=False)
    await alive.add(row(0), row(0).to_json())
    await alive.commit("y", insist=False)
    assert await redis.zcard(key("staging")) == 0


async def test_the_last_row_completes_the_job_and_nothing_of_the_queue_stays(redis: Redis) -> None:
    job = await submitted(redis, 2 * SHARD_ROWS)
    assert await finished(redis, await claimed(redis)) == SHARD_ROWS
    assert (await stats(redis, job)).state is JobState.RUNNING
    assert await finished(redis, await claimed(redis)) == SHARD_ROWS
    done = await stats(redis, job)
    assert (done.state, done.done, done.failed) == (JobState.COMPLETED, 2 * SHARD_ROWS, 0)
    assert (done.prompt_tokens, done.completion_tokens) == (3 * done.rows, 5 * done.rows)
    assert 0 < (done.created or 0) <= (done.started or 0) <= (done.ended or 0)
    kept = {key("job", job), key("results", job), key("finished", job), key("jobs"), key("identities"), key("turn")}
    assert set(await redis.keys()) == kept


async def test_refused_rows_count_as_failed_and_have_results(redis: Redis) -> None:
    staged = await Submission.begin(redis, model="target", name="test")
    await staged.refuse(Outcome.failed_row(0, 7, None, RowFault("invalid_json", "no")))
    await staged.add(row(1), row(1).to_json())
    job = await staged.commit("x", insist=False)
    before = await stats(redis, job)
    assert (before.rows, before.done, before.failed, before.invalid) == (2, 1, 1, 1)
    await finished(redis, await claimed(redis))
    lines = [json.loads(line) async for line in fetch.results(redis, job, order="input")]
    assert lines[0]["custom_id"] is None
    assert lines[0]["error"]["line"] == 7
    assert lines[1]["custom_id"] == "r1"
    assert (await stats(redis, job)).state is JobState.COMPLETED


async def test_a_row_is_counted_once_however_often_it_is_written(redis: Redis) -> None:
    job = await submitted(redis, 3)
    claim = await claimed(redis)
    ends = [end(each) for each in claim.rows]
    assert await leases.finish(redis, [(claim.lease, ends[:2]), (claim.lease, ends[:2])]) == [2, 0]
    assert (await stats(redis, job)).done == 2
    assert await leases.finish(redis, [(claim.lease, ends)]) == [1]
    assert await leases.finish(redis, [(claim.lease, ends)]) == [None], "the shard is finished, its lease gone"
    assert (await stats(redis, job)).done == 3
    assert len([line async for line in fetch.results(redis, job, order="done")]) == 3


async def test_only_unfinished_rows_run_again_after_a_lease_ran_out(redis: Redis) -> None:
    job = await submitted(redis, 5)
    dead = await claimed(redis)
    await leases.finish(redis, [(dead.lease, [end(dead.rows[1]), end(dead.rows[3], failed=True)])])
    assert await leases.reap(redis) == []
    await expire(redis)
    assert await leases.reap(redis) == [(job, 0)]
    assert await leases.reap(redis) == []
    alive = await claimed(redis)
    assert [each.index for each in alive.rows] == [0, 2, 4]
    assert alive.lease.epoch == dead.lease.epoch + 1
    assert await redis.hget(key("lost", job), "0") == "1"
    assert await finished(redis, alive) == 3
    done = await stats(redis, job)
    assert (done.state, done.done, done.failed) == (JobState.COMPLETED, 5, 1)


@pytest.mark.parametrize("reclaimed", [True, False])
async def test_a_worker_that_wakes_up_late_can_do_nothing(redis: Redis, reclaimed: bool) -> None:
    await submitted(redis, 4)
    frozen = await claimed(redis)
    await expire(redis)
    await leases.reap(redis)
    if reclaimed:
        await claimed(redis)
    assert await leases.renew(redis, [frozen.lease], lease_ms=LEASE_MS) == [frozen.lease]
    assert await finished(redis, frozen) is None
    assert not await leases.release(redis, frozen.lease)
    assert (await stats(redis, frozen.lease.job_id)).done == 0


async def test_an_expired_lease_that_nobody_took_can_still_be_renewed(redis: Redis) -> None:
    await submitted(redis, 4)
    claim = await claimed(redis)
    await expire(redis)
    assert await leases.renew(redis, [claim.lease], lease_ms=LEASE_MS) == []
    assert await leases.reap(redis) == []


async def test_a_released_shard_is_claimable_at_once_with_what_is_left(redis: Redis) -> None:
    await submitted(redis, 4)
    claim = await claimed(redis)
    await leases.finish(redis, [(claim.lease, [end(claim.rows[0])])])
    assert await leases.release(redis, claim.lease)
    assert not await leases.release(redis, claim.lease)
    again = await claimed(redis)
    assert [each.index for each in again.rows] == [1, 2, 3]


async def test_jobs_share_the_fleet_by_turns(redis: Redis) -> None:
    long = await submitted(redis, 6 * SHARD_ROWS)
    await claimed(redis)
    short = await submitted(redis, 2 * SHARD_ROWS)
    turns = [(await claimed(redis)).lease.job_id for _ in range(5)]
    assert sorted(turns[:2]) == sorted([long, short])
    assert sorted(turns[2:4]) == sorted([long, short])
    assert turns[4] == long


async def test_models_do_not_mix(redis: Redis) -> None:
    job = await submitted(redis, 2 * SHARD_ROWS, model="one")
    assert await leases.claim(redis, served="two", lease_ms=LEASE_MS) is None
    assert await leases.claim(redis, served="target", lease_ms=LEASE_MS) is None
    assert (await claimed(redis, "one")).lease.job_id == job


async def test_a_job_for_any_target_is_bound_to_the_first_model_that_takes_it(redis: Redis) -> None:
    job = await submitted(redis, 2 * SHARD_ROWS)
    first = await claimed(redis, "one")
    assert (await stats(redis, job)).model == "one"
    assert await leases.claim(redis, served="two", lease_ms=LEASE_MS) is None
    await leases.release(redis, first.lease)
    assert await leases.claim(redis, served="two", lease_ms=LEASE_MS) is None
    assert {(await claimed(redis, "one")).lease.shard for _ in range(2)} == {0, 1}


async def test_the_same_rows_again_are_the_same_job(redis: Redis) -> None:
    first = await submitted(redis, 3, identity="same")
    assert await submitted(redis, 3, identity="same") == first
    staged = await Submission.begin(redis, model="target", name="test")
    await staged.add(row(0), row(0).to_json())
    other = await staged.commit("same", insist=True)
    assert other == staged.job_id != first
    assert [job.job_id for job in await jobs.statuses(redis)] == [first, other]


async def test_many_claimers_at_once_get_each_shard_once(redis: Redis) -> None:
    await submitted(redis, 40 * SHARD_ROWS)
    claims = await asyncio.gather(*(leases.claim(redis, served="target", lease_ms=LEASE_MS) for _ in range(60)))
    shards = [found.lease.shard for found in claims if found]
    assert sorted(shards) == list(range(40))


async def test_scripts_are_loaded_again_when_redis_forgot_them(redis: Redis) -> None:
    await submitted(redis, 3)
    await redis.script_flush()
    assert len((await claimed(redis)).rows) == 3


async def test_results_in_both_orders_page_by_page(redis: Redis) -> None:
    rows = 700
    job = await submitted(redis, rows)
    ends: list[int] = []
    while (claim := await leases.claim(redis, served="target", lease_ms=LEASE_MS)) is not None:
        backwards = [end(each) for each in reversed(claim.rows)]
        ends += [each.index for each in backwards]
        await leases.finish(redis, [(claim.lease, backwards)])
    completion = [json.loads(line)["custom_id"] async for line in fetch.results(redis, job, order="done")]
    assert completion == [f"r{index}" for index in ends]
    by_input = [json.loads(line)["custom_id"] async for line in fetch.results(redis, job, order="input")]
    assert by_input == [f"r{index}" for index in range(rows)]
