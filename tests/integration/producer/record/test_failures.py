"""Failed rows, found among all results."""

import pytest
from record_jobs import claimed, stats, submitted
from redis.asyncio import Redis

from producer.record import consume, failures, leases
from producer.record.failures import Failure
from producer.record.keys import key
from producer.record.models import SHARD_ROWS, Answer, Outcome, RowFault


async def answered(redis: Redis, *failing: int) -> None:
    """The next shard, all of it: these rows of it fail."""
    claim = await claimed(redis)
    fault = RowFault("odd", 'says: ,"response":null,"error":{')
    ends = [
        Outcome.failed_row(row.index, row.line, row.custom_id, fault)
        if row.index in failing
        else Outcome.answered(row, Answer({"text": ',"response":null,"error":{'}, 1, 1))
        for row in claim.rows
    ]
    await leases.finish(redis, [(claim.lease, ends)])


async def found(redis: Redis, job: str) -> list[Failure]:
    return [each async for each in failures.failures(redis, await stats(redis, job))]


@pytest.mark.parametrize("page", [1, 3, 2000])
async def test_those_that_failed_are_found_and_no_others(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(failures, "_ROWS", page)
    job = await submitted(redis, 2 * SHARD_ROWS, refused=2)
    await answered(redis, 3, 5)
    await answered(redis, SHARD_ROWS)
    lines = [failure.line for failure in await found(redis, job)]
    assert sorted(lines) == [4, 6, SHARD_ROWS + 1, 2 * SHARD_ROWS + 1, 2 * SHARD_ROWS + 2]
    (odd,) = [failure for failure in await found(redis, job) if failure.line == 4]
    assert odd == Failure(4, "", "r3", "odd", 'says: ,"response":null,"error":{')
    assert odd.to_json() == {"line": 4, "custom_id": "r3", "code": "odd", "message": odd.message}


async def test_a_job_without_failures_is_not_read(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await submitted(redis, SHARD_ROWS)
    await answered(redis)
    monkeypatch.setattr(failures.scripts, "run", None)
    assert await found(redis, job) == []


@pytest.mark.parametrize("page", [1, 3, 2000])
async def test_those_that_a_consumer_has_set_aside_are_there_and_those_it_took_are_not(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(failures, "_ROWS", page)
    job = await submitted(redis, 2 * SHARD_ROWS)
    await answered(redis, 1)
    batch = await consume.take(redis, job)
    assert batch is not None
    await answered(redis, SHARD_ROWS + 1)
    assert [failure.line for failure in await found(redis, job)] == [2, SHARD_ROWS + 2]
    assert await consume.trim(redis, job, batch)
    assert [failure.line for failure in await found(redis, job)] == [SHARD_ROWS + 2]


async def test_error_lines_that_somebody_has_damaged_are_passed_over(redis: Redis) -> None:
    job = await submitted(redis, SHARD_ROWS)
    await answered(redis, 1, 2)
    await redis.hset(key("results", job), "1", '{,"response":null,"error":{')  # type: ignore[misc]
    assert [failure.line for failure in await found(redis, job)] == [3]
