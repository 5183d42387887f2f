"""Keys that somebody has damaged, in a real Redis: one job is stopped, nothing is lost, and mended it goes on."""

import pytest
from record_jobs import LEASE_MS, claimed, expire, finish, stats, submitted
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from producer.record import control, jobs, leases, scripts
from producer.record.connection import connect
from producer.record.keys import key
from producer.record.memory import memory
from producer.record.models import SHARD_ROWS, JobState, Outcome
from producer.record.submission import Submission


@pytest.mark.parametrize("damaged", ["rows", "open", "epochs", "lost"])
async def test_damaged_keys_stop_their_own_job_alone_and_mended_it_goes_on(redis: Redis, damaged: str) -> None:
    job, other = await submitted(redis, 3 * SHARD_ROWS), await submitted(redis, 2 * SHARD_ROWS)
    assert (await claimed(redis)).lease.job_id == job
    name = key(damaged, job, *(["0"] if damaged == "rows" else []))
    if await redis.exists(name):
        await redis.rename(name, "kept")
    await redis.set(name, "junk")
    assert (await claimed(redis)).lease.job_id == other
    assert (await scripts.run(redis, "demand", "target", "x"))[0] > 0  # somebody must come and find out
    await expire(redis)
    found = [await leases.claim(redis, served="target", lease_ms=LEASE_MS) for _ in range(8)]
    of_other = [claim for claim in found if claim and claim.lease.job_id == other]
    assert {claim.lease.shard for claim in of_other} == {0, 1}
    stopped = await stats(redis, job)
    assert stopped.state is JobState.PAUSED
    assert stopped.reason.startswith("its keys in Redis are damaged: WRONGTYPE")
    assert "script" not in stopped.reason
    assert await memory(redis, stopped) > 0
    await redis.delete(name)
    if await redis.exists("kept"):
        await redis.rename("kept", name)
    assert await control.resume(redis, job)
    await expire(redis)
    while (claim := await leases.claim(redis, served="target", lease_ms=LEASE_MS)) is not None:
        await finish(redis, claim)
    mended = await stats(redis, job)
    assert (mended.state, mended.done) == (JobState.COMPLETED, 3 * SHARD_ROWS)


async def test_missing_rights_are_no_damage(redis: Redis, server: str) -> None:
    job = await submitted(redis, 2 * SHARD_ROWS)
    await redis.acl_setuser("poor", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all", "-hgetall"])
    async with connect(
        redis.connection_pool.connection_kwargs["path"].join(["unix://", "?username=poor&password=x"])
    ) as poor:
        with pytest.raises(ResponseError):
            await leases.claim(poor, served="target", lease_ms=LEASE_MS)
    await redis.acl_deluser("poor")
    assert (await stats(redis, job)).state is not JobState.PAUSED
    assert {(await claimed(redis)).lease.shard for _ in range(2)} == {0, 1}


async def test_damaged_jobs_hold_up_neither_submissions_nor_lists(redis: Redis) -> None:
    job, left = await submitted(redis, 2, ttl_s=1), await Submission.begin(redis, model="target", name="left")
    await finish(redis, await claimed(redis))
    for name, when in (("expiring", job), ("staging", left.job_id)):
        await redis.zadd(key(name), {when: 1})
    for each in (job, left.job_id):
        await redis.delete(key("job", each))
        await redis.set(key("job", each), "junk")
    other = await submitted(redis, 2)
    assert [each.job_id for each in await jobs.statuses(redis)] == [other]
    assert await redis.zcard(key("expiring")) == await redis.zcard(key("staging")) == 0


@pytest.mark.parametrize("damaged", ["results", "finished", "failed"])
async def test_a_batch_that_is_refused_has_changed_nothing(redis: Redis, damaged: str) -> None:
    job = await submitted(redis, 3)
    claim = await claimed(redis)
    ends = [Outcome(each.index, "{}", failed=each.index == 1) for each in claim.rows]
    await redis.set(key(damaged, job), "junk")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await leases.finish(redis, [(claim.lease, ends)])
    await redis.delete(key(damaged, job))
    assert await leases.finish(redis, [(claim.lease, ends)]) == [3]
    done = await stats(redis, job)
    assert (done.state, done.done, done.failed) == (JobState.COMPLETED, 3, 1)
    assert await redis.lrange(key("finished", job), 0, -1) == ["0", "1", "2"]


async def test_a_reap_that_was_long_on_its_way_takes_nothing(redis: Redis) -> None:
    await submitted(redis, 2)
    claim = await claimed(redis)
    await redis.zadd(key("leases"), {f"{claim.lease.job_id} {claim.lease.shard}": 1})
    seconds, _ = await redis.time()
    assert await scripts.run(redis, "reap", 100, (seconds - 5) * 1000) == []
    assert await leases.renew(redis, [claim.lease], lease_ms=LEASE_MS) == []
    assert await finish(redis, claim) == 2
