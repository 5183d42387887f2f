"""Rows that are added to a job: all at once, or none."""

import json
from contextlib import suppress
from typing import Any

import pytest
from given_lines import GivenLines
from record_jobs import LEASE_MS, claimed, finish, keys, stats
from redis.asyncio import Redis

from producer.intake.submission import AppendRefused, NothingReadable, Submitted, submit_lines
from producer.record import consume, control, fetch, jobs, leases, scripts
from producer.record.keys import key
from producer.record.models import SHARD_ROWS, JobState
from producer.record.submission import Submission

LINES = [b"{bad" if number == 5 else b'{"prompt": "%d"}' % number for number in range(60)]
FIRST = 40


async def submit(redis: Redis, lines: list[bytes], **options: Any) -> Submitted:
    source = GivenLines(b"\n".join(lines))
    return await submit_lines(redis, source, model="target", name="test", **options)


async def answer_all(redis: Redis) -> list[int]:
    """The rows that were claimed."""
    indices: list[int] = []
    while (claim := await leases.claim(redis, served="target", lease_ms=LEASE_MS)) is not None:
        indices += [row.index for row in claim.rows]
        await finish(redis, claim)
    return indices


async def names(redis: Redis, job_id: str) -> list[str]:
    lines = [json.loads(line) async for line in fetch.results(redis, job_id, order="input")]
    return [line if isinstance(line, str) else f"row-{line['error']['line']}" for line in lines]


@pytest.mark.parametrize("state", ["queued", "running", "paused", "completed"])
async def test_only_the_new_rows_are_computed_whatever_the_job_does(redis: Redis, state: str) -> None:
    job = (await submit(redis, LINES[:FIRST])).job_id
    before: list[int] = []
    if state == "running":
        claim = await claimed(redis)
        before = [row.index for row in claim.rows]
        await finish(redis, claim)
    elif state == "paused":
        await control.pause(redis, job)
    elif state == "completed":
        before = await answer_all(redis)
    added = await submit(redis, LINES, append=job)
    assert (added.job_id, added.rows, added.appended, added.resumed) == (job, 60, 20, False)
    assert added.state == (state if state != "completed" else "running")
    if state == "paused":
        assert await answer_all(redis) == []
        await control.resume(redis, job)
    assert sorted(before + await answer_all(redis)) == [index for index in range(60) if index != 5]
    done = await stats(redis, job)
    assert (done.state, done.rows, done.done, done.failed, done.invalid) == (JobState.COMPLETED, 60, 60, 1, 1)
    assert await names(redis, job) == [f"row-{number + 1}" for number in range(60)]
    assert [each.job_id for each in await jobs.statuses(redis)] == [job]


async def test_it_is_then_the_job_of_the_longer_file_and_of_no_other(redis: Redis) -> None:
    job = (await submit(redis, LINES[:FIRST])).job_id
    await submit(redis, LINES, append=job)
    whole = await submit(redis, LINES)
    assert (whole.job_id, whole.resumed) == (job, True)
    part = await submit(redis, LINES[:FIRST])
    assert (part.job_id != job, part.resumed) == (True, False)
    again = await submit(redis, LINES, append=job)
    assert (again.job_id, again.appended, again.resumed) == (job, 0, True)
    assert (await stats(redis, job)).rows == 60


async def test_refused_rows_are_moved_and_a_job_may_consist_of_more_of_them(redis: Redis) -> None:
    job = (await submit(redis, LINES[:FIRST])).job_id
    await answer_all(redis)
    added = await submit(redis, [*LINES[:FIRST], b"{a", b"{b"], append=job)
    assert (added.appended, added.invalid, added.state) == (2, 2, "completed")
    assert (await names(redis, job))[-3:] == ["row-40", "row-41", "row-42"]
    assert (await stats(redis, job)).failed == 3
    assert await redis.zcard(key("staging")) == 0


async def test_nothing_of_the_staged_job_stays(redis: Redis) -> None:
    job = (await submit(redis, LINES[:FIRST])).job_id
    await submit(redis, LINES, append=job)
    await answer_all(redis)
    await control.purge(redis, job)
    assert await redis.keys() == [key("turn")]


@pytest.mark.parametrize(
    ("lines", "options", "why"),
    [
        ([b'{"prompt": "x"}', *LINES[1:]], {}, "its first 40 rows are not those of job"),
        ([*LINES[:39], b'{"prompt": "x"}', *LINES[40:]], {}, "its first 40 rows are not those of job"),
        (LINES[:30], {}, "it has 30 rows, job .* has 40"),
        ([], {}, "it has 0 rows"),
        (LINES, {"defaults": {"seed": 2}}, "other defaults"),
    ],
    ids=["first-row", "last-row", "shorter", "empty", "defaults"],
)
async def test_what_does_not_begin_with_the_job_is_refused(
    redis: Redis, lines: list[bytes], options: dict[str, Any], why: str
) -> None:
    job = (await submit(redis, LINES[:FIRST], defaults={"seed": 1})).job_id
    before = await redis.hgetall(key("job", job))
    with pytest.raises(AppendRefused, match=why):
        await submit(redis, lines, append=job, **options)
    assert await redis.hgetall(key("job", job)) == before
    assert len(await jobs.statuses(redis)) == 1


async def test_jobs_that_take_no_rows(redis: Redis) -> None:
    with pytest.raises(AppendRefused, match="there is no job nosuch"):
        await submit(redis, LINES, append="nosuch")
    job = (await submit(redis, LINES[:FIRST])).job_id
    await control.cancel(redis, job)
    with pytest.raises(AppendRefused, match="is cancelled"):
        await submit(redis, LINES, append=job)
    staged = await Submission.begin(redis, model="target", name="test")
    with pytest.raises(AppendRefused, match="still being submitted"):
        await submit(redis, LINES, append=staged.job_id)


async def test_a_job_that_changed_meanwhile_is_left_as_it_is(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    job = (await submit(redis, LINES[:FIRST])).job_id
    commit = Submission.commit

    async def late(staged: Submission, *args: Any, **options: Any) -> str:
        monkeypatch.setattr(Submission, "commit", commit)
        await submit(redis, LINES[:50], append=job)
        return await commit(staged, *args, **options)

    monkeypatch.setattr(Submission, "commit", late)
    with pytest.raises(AppendRefused, match="was changed meanwhile"):
        await submit(redis, LINES, append=job)
    assert (await stats(redis, job)).rows == 50
    assert [each.job_id for each in await jobs.statuses(redis)] == [job]
    assert (await submit(redis, LINES, append=job)).appended == 10


async def test_who_adds_what_another_one_has_just_added_leaves_nothing(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = (await submit(redis, LINES[:FIRST])).job_id
    commit = Submission.commit

    async def late(staged: Submission, *args: Any, **options: Any) -> str:
        monkeypatch.setattr(Submission, "commit", commit)
        await submit(redis, LINES, append=job)
        return await commit(staged, *args, **options)

    monkeypatch.setattr(Submission, "commit", late)
    assert (await submit(redis, LINES, append=job)).job_id == job
    assert [(each.job_id, each.rows) for each in await jobs.statuses(redis)] == [(job, 60)]
    assert await redis.zcard(key("staging")) == 0


async def test_cut_short_it_is_continued_and_an_answer_that_was_lost_changes_nothing(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = (await submit(redis, LINES[:FIRST])).job_id
    monkeypatch.setattr(Submission, "BUFFERED_BYTES", 100)
    run_many = scripts.run_many

    async def cut(client: Redis, calls: Any, **options: Any) -> Any:
        if calls[0][0] == "append":
            raise ConnectionResetError
        return await run_many(client, calls, **options)

    with suppress(ConnectionResetError), pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts, "run_many", cut)
        await submit(redis, LINES, append=job)
    assert (await stats(redis, job)).rows == FIRST

    async def twice(client: Redis, calls: Any, **options: Any) -> Any:
        await run_many(client, calls, **options)
        return await run_many(client, calls, **options)

    monkeypatch.setattr(scripts, "run_many", twice)
    added = await submit(redis, LINES, append=job)
    assert (added.appended, added.continued) == (20, 20)
    monkeypatch.undo()
    assert sorted(await answer_all(redis)) == [index for index in range(60) if index != 5]
    assert (await stats(redis, job)).done == 60


async def test_a_consumer_that_had_ended_goes_on(redis: Redis) -> None:
    job = (await submit(redis, LINES[:FIRST])).job_id
    await answer_all(redis)
    seen: list[str] = []

    async def consumed() -> None:
        while (batch := await consume.take(redis, job)) is not None and batch.lines:
            assert batch.consumed == len(seen)
            seen.extend(batch.lines)
            await consume.trim(redis, job, batch)

    await consumed()
    assert len(seen) == FIRST
    await submit(redis, [*LINES, b"{bad"], append=job)
    await answer_all(redis)
    await consumed()
    assert len(seen) == len(set(seen)) == 61
    assert (await stats(redis, job)).consumed == 61


async def test_a_job_that_was_to_expire_stays_until_its_new_end(redis: Redis) -> None:
    job = (await submit(redis, LINES[:FIRST], options=jobs.JobOptions(ttl_s=100))).job_id
    await answer_all(redis)
    assert await redis.zcard(key("expiring")) == 1
    await submit(redis, LINES, append=job)
    assert await redis.zcard(key("expiring")) == 0
    await answer_all(redis)
    assert await redis.zcard(key("expiring")) == 1


async def test_damaged_rows_are_not_added(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    job = (await submit(redis, LINES[:FIRST])).job_id
    before = await keys(redis, job)
    commit = Submission._last_call

    def damaging(staged: Submission, *args: Any, **options: Any) -> Any:
        damaged.append(staged.job_id)
        return commit(staged, *args, **options)

    damaged: list[str] = []
    run_many = scripts.run_many

    async def run(client: Redis, calls: Any, **options: Any) -> Any:
        if calls[0][0] == "append":
            await redis.delete(key("rows", damaged[0], 1))
        return await run_many(client, calls, **options)

    monkeypatch.setattr(Submission, "_last_call", damaging)
    monkeypatch.setattr(scripts, "run_many", run)
    with pytest.raises(Exception, match="older state"):
        await submit(redis, LINES, append=job)
    assert await keys(redis, job) == before
    assert (await stats(redis, job)).rows == FIRST


async def test_a_changed_file_is_told_apart(redis: Redis) -> None:
    first = await submit(redis, LINES[:FIRST])
    assert (first.differs_from, first.extends) == ("", "")
    longer = await submit(redis, LINES)
    assert (longer.differs_from, longer.extends, longer.extended_rows) == (first.job_id, first.job_id, FIRST)
    changed = await submit(redis, [b'{"prompt": "x"}', *LINES[1:]])
    assert (changed.differs_from, changed.extends) == (longer.job_id, "")
    again = await submit(redis, LINES)
    assert (again.job_id, again.resumed, again.differs_from) == (longer.job_id, True, "")
    other = await submit(redis, LINES[: SHARD_ROWS + 1], defaults={"seed": 1})
    assert (other.differs_from, other.extends) == (changed.job_id, "")


async def test_nothing_to_read_is_still_refused(redis: Redis) -> None:
    with pytest.raises(NothingReadable, match="none of its 2 rows can be used; line 1: the line is not JSON"):
        await submit(redis, [b"{a", b"{b"])
    assert await redis.keys() == []


async def test_refused_rows_are_no_reason_to_stop_a_job_that_they_are_added_to(redis: Redis) -> None:
    job = (await submit(redis, LINES[6:46], options=jobs.JobOptions(max_error_rate=0.3))).job_id
    await answer_all(redis)
    more = [b"{bad"] * 40 + [b'{"prompt": "more %d"}' % number for number in range(2 * SHARD_ROWS)]
    await submit(redis, LINES[6:46] + more, append=job)
    await finish(redis, await claimed(redis), failed=True)  # 16 of the 56 that workers have answered
    found = await stats(redis, job)
    assert (found.state, found.reason) == (JobState.RUNNING, "")
    await finish(redis, await claimed(redis), failed=True)
    assert (await stats(redis, job)).failed == 40 + 2 * SHARD_ROWS


async def test_too_many_errors_still_stop_it(redis: Redis) -> None:
    job = (await submit(redis, LINES[6:46], options=jobs.JobOptions(max_error_rate=0.25))).job_id
    await answer_all(redis)
    more = [b"{bad"] * 40 + [b'{"prompt": "more %d"}' % number for number in range(2 * SHARD_ROWS)]
    await submit(redis, LINES[6:46] + more, append=job)
    await finish(redis, await claimed(redis), failed=True)
    found = await stats(redis, job)
    assert (found.state, found.reason) == (
        JobState.PAUSED,
        "16 of 56 rows failed, more than the share of 0.25 allowed",
    )
