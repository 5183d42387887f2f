"""Failed rows, found among all results."""

import json
from itertools import pairwise
from typing import Any

import pytest
from record_jobs import claimed, stats, submitted
from redis.asyncio import Redis

from producer.record import consume, failures, leases, scripts
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


@pytest.mark.parametrize("page", [1, 3, 10])
async def test_a_consumer_beside_it_hides_nothing(redis: Redis, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """What leaves Redis may be missing; what stays is found, once."""
    monkeypatch.setattr(failures, "_ROWS", page)
    monkeypatch.setattr(consume, "_ROWS", 5)
    job = await submitted(redis, 2 * SHARD_ROWS)
    await answered(redis, *range(SHARD_ROWS))
    await answered(redis, *range(SHARD_ROWS, 2 * SHARD_ROWS))
    seen, gone = [], set()
    async for failure in failures.failures(redis, await stats(redis, job)):
        seen.append(failure.line)
        if len(seen) % 2 and len(gone) < SHARD_ROWS:
            batch = await consume.take(redis, job)
            assert batch is not None
            gone |= {json.loads(line)["error"]["line"] for line in batch.lines}
            assert await consume.trim(redis, job, batch)
    assert len(set(seen)) == len(seen)
    assert {*range(1, 2 * SHARD_ROWS + 1)} - gone <= set(seen)


async def test_one_call_reads_so_many_bytes(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    for at in range(3):
        await answered(redis, SHARD_ROWS * at)
    for index in range(3 * SHARD_ROWS):
        line = await redis.hget(key("results", job), str(index))  # type: ignore[misc]
        await redis.hset(key("results", job), str(index), line + " " * 40_000)  # type: ignore[misc]
    monkeypatch.setattr(failures, "_BYTES", 200_000)
    real, places = scripts.run, [0]

    async def run(*arguments: Any, **how: Any) -> Any:
        answer = await real(*arguments, **how)
        places.append(answer[0])
        return answer

    monkeypatch.setattr(failures.scripts, "run", run)
    assert [failure.line for failure in await found(redis, job)] == [1, SHARD_ROWS + 1, 2 * SHARD_ROWS + 1]
    assert max(after - before for before, after in pairwise(places)) == 5


async def test_error_lines_that_somebody_has_damaged_are_passed_over(redis: Redis) -> None:
    job = await submitted(redis, SHARD_ROWS)
    await answered(redis, 1, 2)
    await redis.hset(key("results", job), "1", '{,"response":null,"error":{')  # type: ignore[misc]
    assert [failure.line for failure in await found(redis, job)] == [3]
