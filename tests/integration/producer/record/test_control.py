"""What a user may do to a job, and what becomes of rows that take workers down, in the record."""

import asyncio

import pytest
from record_jobs import LEASE_MS, claimed, expire, finish, keys, nothing_to_claim, row, stats, submitted
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from producer.record import control, fetch, jobs, leases, scripts
from producer.record.jobs import JobOptions
from producer.record.keys import key
from producer.record.leases import CONDEMNED, SUSPECT
from producer.record.models import SHARD_ROWS, JobState, Outcome, RowFault
from producer.record.submission import Submission, SubmissionLost


async def test_a_cancelled_job_keeps_what_is_done_and_nothing_of_it_is_answered_any_more(redis: Redis) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    await finish(redis, await claimed(redis))
    running = await claimed(redis)
    assert await control.cancel(redis, job)
    assert not await control.cancel(redis, job)
    assert await leases.renew(redis, [running.lease], lease_ms=LEASE_MS) == [running.lease]
    assert await finish(redis, running) is None
    assert not await leases.release(redis, running.lease)
    assert await nothing_to_claim(redis)
    while await control.sweep(redis):
        pass
    assert await keys(redis, job) == {"", "results", "finished"}
    ended = await stats(redis, job)
    assert (ended.state, ended.done, ended.rows) == (JobState.CANCELLED, SHARD_ROWS, 3 * SHARD_ROWS)
    assert len([line async for line in fetch.results(redis, job, order="input")]) == SHARD_ROWS


async def test_a_cancelled_submission_is_gone(redis: Redis) -> None:
    staged = await Submission.begin(redis, model="target", name="test")
    assert await control.cancel(redis, staged.job_id)
    with pytest.raises(SubmissionLost):
        await staged.commit("x", insist=False)
    assert await keys(redis, staged.job_id) == set()


async def test_many_shards_are_swept_in_portions(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_SWEPT_SHARDS", 2)
    job = await submitted(redis, 5 * SHARD_ROWS)
    await control.cancel(redis, job)
    assert [await control.sweep(redis) for _ in range(4)] == [True, True, False, False]
    assert await keys(redis, job) == {""}


async def test_a_paused_job_is_not_claimed_and_what_runs_ends(redis: Redis) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    running, given_back = await claimed(redis), await claimed(redis)
    assert await control.pause(redis, job)
    assert not await control.pause(redis, job)
    assert await finish(redis, running) == SHARD_ROWS
    assert await leases.release(redis, given_back.lease)
    assert await nothing_to_claim(redis)
    assert (await stats(redis, job)).state is JobState.PAUSED
    assert await control.resume(redis, job)
    assert not await control.resume(redis, job)
    for _ in range(2):
        await finish(redis, await claimed(redis))
    assert (await stats(redis, job)).state is JobState.COMPLETED
    assert not await control.pause(redis, job)


async def test_a_job_whose_last_rows_end_while_it_is_paused_is_completed(redis: Redis) -> None:
    job = await submitted(redis, 2)
    running = await claimed(redis)
    await control.pause(redis, job)
    await finish(redis, running)
    assert (await stats(redis, job)).state is JobState.COMPLETED


async def test_a_job_that_was_paused_before_it_began_is_queued_again(redis: Redis) -> None:
    job = await submitted(redis, 2)
    await control.pause(redis, job)
    assert await nothing_to_claim(redis)
    await control.resume(redis, job)
    assert (await stats(redis, job)).state is JobState.QUEUED
    await claimed(redis)


async def test_failed_rows_alone_run_again_and_are_counted_once(redis: Redis) -> None:
    rows = 3 * SHARD_ROWS
    job = await submitted(redis, rows, refused=2)
    ends: list[int] = []
    for failed in (True, False, True):
        claim = await claimed(redis)
        await finish(redis, claim, failed=failed)
        ends += [each.index for each in claim.rows]
    before = await stats(redis, job)
    assert (before.state, before.done, before.failed) == (JobState.COMPLETED, rows + 2, 2 * SHARD_ROWS + 2)
    assert await control.retry(redis, job) == 2 * SHARD_ROWS
    assert await control.retry(redis, job) == 0
    during = await stats(redis, job)
    assert (during.state, during.done, during.failed, during.ended) == (JobState.RUNNING, SHARD_ROWS + 2, 2, None)
    assert len([line async for line in fetch.results(redis, job, order="done")]) == SHARD_ROWS + 2
    again = [await claimed(redis), await claimed(redis)]
    assert [each.index for claim in again for each in claim.rows] == ends[:SHARD_ROWS] + ends[2 * SHARD_ROWS :]
    for claim in again:
        await finish(redis, claim)
    after = await stats(redis, job)
    assert (after.state, after.done, after.failed) == (JobState.COMPLETED, rows + 2, 2)
    by_end = [line async for line in fetch.results(redis, job, order="done")]
    assert len(by_end) == len(set(by_end)) == rows + 2
    assert await keys(redis, job) == {"", "results", "finished"}


async def test_an_epoch_of_before_a_retry_is_worth_nothing(redis: Redis) -> None:
    job = await submitted(redis, 4)
    first = await claimed(redis)
    await finish(redis, first, failed=True)
    await control.retry(redis, job)
    second = await claimed(redis)
    assert second.rows == first.rows
    assert await finish(redis, first) is None
    assert await finish(redis, second) == 4


async def test_a_higher_priority_goes_first_and_equals_share(redis: Redis) -> None:
    low = await submitted(redis, 4 * SHARD_ROWS, priority=-1)
    first = await submitted(redis, 2 * SHARD_ROWS)
    second = await submitted(redis, 2 * SHARD_ROWS)
    urgent = await submitted(redis, SHARD_ROWS, priority=100)
    order = [(await claimed(redis)).lease.job_id for _ in range(9)]
    assert order[0] == urgent
    assert sorted(order[1:3]) == sorted(order[3:5]) == sorted([first, second])
    assert order[5:] == [low] * 4


async def test_priority_holds_across_jobs_for_this_model_and_for_any(redis: Redis) -> None:
    any_model = await submitted(redis, 2 * SHARD_ROWS)
    staged = await Submission.begin(redis, model="mine", name="test", options=JobOptions(priority=5))
    await staged.add(row(0), row(0).to_json())
    mine = await staged.commit("x", insist=False)
    found = [await leases.claim(redis, served="mine", lease_ms=LEASE_MS) for _ in range(2)]
    assert [claim and claim.lease.job_id for claim in found] == [mine, any_model]


async def test_too_many_errors_pause_the_job_until_it_is_resumed(redis: Redis) -> None:
    job = await submitted(redis, 10 * SHARD_ROWS, refused=60, max_error_rate=0.5)
    for failed in (False, False, True):
        await finish(redis, await claimed(redis), failed=failed)
    assert (await stats(redis, job)).state is JobState.RUNNING  # the refused rows are not judged
    for _ in range(2):
        await finish(redis, await claimed(redis), failed=True)
    paused = await stats(redis, job)
    assert (paused.state, paused.reason) == (
        JobState.PAUSED,
        "48 of 80 rows failed, more than the share of 0.5 allowed",
    )
    assert await nothing_to_claim(redis)
    await control.resume(redis, job)
    await finish(redis, await claimed(redis), failed=True)
    assert (await stats(redis, job)).state is JobState.RUNNING
    assert (await stats(redis, job)).reason == ""


async def test_an_ended_job_is_purged_on_demand_or_when_its_time_has_come(redis: Redis) -> None:
    kept, purged, expiring = [await submitted(redis, 2, ttl_s=ttl) for ttl in (3600, 3600, 0)]
    assert not await control.purge(redis, purged)
    for _ in range(3):
        await finish(redis, await claimed(redis), failed=True)
    assert await control.purge(redis, purged)
    await asyncio.sleep(0.002)
    await control.sweep(redis)
    assert await keys(redis, purged) == await keys(redis, expiring) == set()
    assert [job.job_id for job in await jobs.statuses(redis)] == [kept]
    assert await redis.hlen(key("identities")) == 1
    assert await control.retry(redis, kept) == 2
    assert await redis.zcard(key("expiring")) == 0


async def test_a_full_redis_lets_work_end_and_takes_none_on(redis: Redis) -> None:
    job = await submitted(redis, 4 * SHARD_ROWS)
    running, other, silent = [await claimed(redis) for _ in range(3)]
    await redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(ResponseError, match="command not allowed when used memory"):
            await leases.claim(redis, served="target", lease_ms=LEASE_MS)
        with pytest.raises(ResponseError, match="command not allowed when used memory"):
            await submitted(redis, 2)
        assert await leases.renew(redis, [running.lease], lease_ms=LEASE_MS) == []
        assert await finish(redis, running) == SHARD_ROWS
        assert await leases.release(redis, other.lease)
        await redis.config_set("maxmemory", 0)
        await redis.zadd(key("leases"), {f"{job} {silent.lease.shard}": 1})
        await redis.config_set("maxmemory", 1)
        assert len(await leases.reap(redis)) == 1
        assert await control.cancel(redis, job)
        assert await control.purge(redis, job)
    finally:
        await redis.config_set("maxmemory", 0)
    while await control.sweep(redis):
        pass
    assert await keys(redis, job) == set()


async def test_a_shard_that_takes_workers_down_runs_alone_then_in_single_rows_and_last(redis: Redis) -> None:
    job = await submitted(redis, 2 * SHARD_ROWS)
    for lost in range(SUSPECT):
        claim = await claimed(redis)
        assert (claim.lease.shard, claim.lost) == (0, lost)
        await expire(redis)
    innocent = await claimed(redis)
    assert (innocent.lease.shard, innocent.lost) == (1, 0)
    await finish(redis, innocent)
    claim = await claimed(redis)
    assert (claim.lease.shard, claim.lost) == (0, SUSPECT)
    assert await leases.finish(redis, [(claim.lease, [Outcome(0, "{}", failed=False)])]) == [1]
    assert await leases.release(redis, claim.lease, lost=True)
    singles = [await claimed(redis) for _ in range(SHARD_ROWS - 1)]
    assert sorted(each.index for single in singles for each in single.rows) == list(range(1, SHARD_ROWS))
    assert {(len(single.rows), single.lost) for single in singles} == {(1, SUSPECT + 1)}
    assert await leases.renew(redis, [claim.lease], lease_ms=LEASE_MS) == [claim.lease]
    for single in singles[1:]:
        await finish(redis, single)
    lease = singles[0].lease
    for _ in range(CONDEMNED - SUSPECT - 1):
        await leases.release(redis, lease, lost=True)
        condemned = await claimed(redis)
        lease = condemned.lease
    assert condemned.rows == []
    (end,) = condemned.hopeless
    assert '"poison_row"' in end.line
    assert await leases.finish(redis, [(lease, [end])]) == [1]
    done = await stats(redis, job)
    assert (done.state, done.failed, done.attempts_lost) == (JobState.COMPLETED, 1, CONDEMNED)
    assert await keys(redis, job) == {"", "results", "finished", "failed"}


async def test_a_shard_given_back_whole_lost_nothing(redis: Redis) -> None:
    job = await submitted(redis, 4)
    for _ in range(2 * CONDEMNED):
        claim = await claimed(redis)
        assert claim.lost == 0
        await leases.release(redis, claim.lease)
    assert (await stats(redis, job)).attempts_lost == 0


async def test_a_stage_whose_answer_was_lost_may_be_sent_again(redis: Redis) -> None:
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(SHARD_ROWS):
        await staged.add(row(index), row(index).to_json())
    calls = list(staged._calls)
    await staged._send()
    staged._calls = calls
    await staged.refuse(Outcome.failed_row(SHARD_ROWS, 1, None, RowFault("bad", "bad")))
    job = await staged.commit("x", insist=False)
    assert await staged.commit("x", insist=False) == job
    found = await stats(redis, job)
    assert (found.rows, found.done, found.invalid) == (SHARD_ROWS + 1, 1, 1)


async def test_a_part_of_a_job_that_never_arrived_is_asked_for_again(redis: Redis) -> None:
    """Two parts are sent at once; a script becomes known between them."""
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(2 * SHARD_ROWS):
        await staged.add(row(index), row(index).to_json())
    first, second = [("stage", call.argv(staged.job_id, staged.owner)) for call in staged._calls]
    with pytest.raises(NoScriptError, match="an earlier part"):
        await scripts.run_many(redis, [second])
    assert await scripts.run_many(redis, [first, second]) == [1, 1]
    staged._calls = []
    await staged.commit("x", insist=False)
    assert (await stats(redis, staged.job_id)).rows == 2 * SHARD_ROWS


async def test_a_job_that_lacks_rows_is_not_started(redis: Redis) -> None:
    staged = await Submission.begin(redis, model="target", name="test")
    await staged.add(row(0), row(0).to_json())
    staged.rows += 1
    with pytest.raises(SubmissionLost):
        await staged.commit("x", insist=False)
    assert await nothing_to_claim(redis)


async def test_a_retry_keeps_the_order_of_the_others(redis: Redis) -> None:
    rows = 1616
    job = await submitted(redis, rows)
    while (claim := await leases.claim(redis, served="target", lease_ms=LEASE_MS)) is not None:
        await finish(redis, claim, failed=claim.lease.shard == 50)
    before = await redis.lrange(key("finished", job), 0, -1)
    assert await control.retry(redis, job) == SHARD_ROWS
    again = {str(index) for index in range(50 * SHARD_ROWS, 51 * SHARD_ROWS)}
    assert await redis.lrange(key("finished", job), 0, -1) == [index for index in before if index not in again]


async def test_what_is_no_name_of_a_doomed_job_is_thrown_away(redis: Redis) -> None:
    await redis.zadd(key("doomed"), {"nonsense": 0})
    job = await submitted(redis, 2)
    await control.cancel(redis, job)
    while await control.sweep(redis):
        pass
    assert await keys(redis, job) == {""}


async def test_rows_that_were_damaged_on_their_way_are_refused(redis: Redis) -> None:
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(SHARD_ROWS):
        await staged.add(row(index), row(index).to_json())
    (call,) = staged._calls
    argv = call.argv(staged.job_id, staged.owner)
    with pytest.raises(ResponseError, match="the rows are damaged"):
        await scripts.run(redis, "stage", *[part.replace(b"7", b"8") if part == argv[6] else part for part in argv])
    assert (await stats(redis, staged.job_id)).rows == 0
    await staged.commit("x", insist=False)
    assert (await claimed(redis)).rows == [row(index) for index in range(SHARD_ROWS)]
