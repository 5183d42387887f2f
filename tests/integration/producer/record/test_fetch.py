"""Reading results: pages bounded in bytes, and a record that changes under the reader is noticed."""

import json

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from producer.record import consume, control, fetch, leases
from producer.record.fetch import Moved, Order, Place
from producer.record.keys import key
from producer.record.models import CHAT_URL, SHARD_ROWS, Outcome, Row, RowFault
from producer.record.submission import Submission


async def submitted(redis: Redis, rows: int) -> str:
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(rows):
        row = Row(index=index, line=index + 1, custom_id=f"r{index}", url=CHAT_URL, body={})
        await staged.add(row, row.to_json())
    return await staged.commit(staged.job_id, insist=False)


async def answer(redis: Redis, *, fail: bool = False, size: int = 0) -> None:
    """End the rows of the next shard, the last one first."""
    claim = await leases.claim(redis, served="target", lease_ms=60_000)
    assert claim is not None
    ends = [
        Outcome.failed_row(row.index, row.line, row.custom_id, RowFault("no", "no"))
        if fail
        else Outcome(row.index, json.dumps({"custom_id": row.custom_id, "text": "\u2028é" + "x" * size}), failed=False)
        for row in reversed(claim.rows)
    ]
    assert await leases.finish(redis, [(claim.lease, ends)]) == [len(ends)]


async def read(redis: Redis, job: str, place: Place, order: Order = "done") -> fetch.Page:
    found = await fetch.page(redis, job, place, order=order)
    assert found is not None
    return found


@pytest.mark.parametrize("order", ["input", "done"])
async def test_pages_are_bounded_in_bytes(redis: Redis, order: Order) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    await answer(redis, size=3 << 20)
    await answer(redis)
    pages = [page async for page in fetch.pages(redis, job, order=order)]
    assert [page.count for page in pages] == [1] * SHARD_ROWS + [SHARD_ROWS]
    lines = b"".join(page.lines for page in pages).split(b"\n")[:-1]
    indices = range(2 * SHARD_ROWS)
    ended = [*reversed(indices[:SHARD_ROWS]), *reversed(indices[SHARD_ROWS:])]
    assert [json.loads(line)["custom_id"] for line in lines] == [
        f"r{n}" for n in (indices if order == "input" else ended)
    ]
    assert [line async for line in fetch.results(redis, job, order=order)] == [line.decode() for line in lines]


@pytest.mark.parametrize("order", ["input", "done"])
async def test_nothing_yet_and_no_such_job(redis: Redis, order: Order) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    assert [page async for page in fetch.pages(redis, job, order=order)] == []
    assert await fetch.page(redis, "nosuch", Place(), order=order) is None
    assert [page async for page in fetch.pages(redis, "nosuch", order=order)] == []


async def test_a_reader_goes_on_where_it_was(redis: Redis) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    await answer(redis)
    first = await read(redis, job, Place())
    assert await read(redis, job, first.end) == fetch.Page(b"", 0, first.end)
    await answer(redis)
    second = await read(redis, job, first.end)
    assert (first.count, second.count) == (SHARD_ROWS, SHARD_ROWS)
    assert not set(first.lines.split(b"\n")[:-1]) & set(second.lines.split(b"\n")[:-1])
    assert first.end.mark == fetch.mark(first.lines.split(b"\n")[-2])


async def test_rows_that_are_retried_before_the_place_are_noticed(redis: Redis) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    await answer(redis, fail=True)
    await answer(redis)
    seen = await read(redis, job, Place())
    assert await control.retry(redis, job) == SHARD_ROWS
    with pytest.raises(Moved, match="retried or consumed"):
        await read(redis, job, seen.end)
    await answer(redis)
    with pytest.raises(Moved):
        await read(redis, job, seen.end)


async def test_rows_that_are_retried_after_the_place_move_nothing(redis: Redis) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    await answer(redis)
    seen = await read(redis, job, Place())
    await answer(redis, fail=True)
    assert await control.retry(redis, job) == SHARD_ROWS
    assert (await read(redis, job, seen.end)).count == 0
    await answer(redis)
    assert (await read(redis, job, seen.end)).count == SHARD_ROWS


async def test_what_a_consumer_sets_aside_keeps_its_place_and_what_it_trims_is_missed(redis: Redis) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    await answer(redis)
    before = await read(redis, job, Place())
    batch = await consume.take(redis, job)
    assert batch is not None
    await answer(redis)
    both = await read(redis, job, Place())
    assert both.lines.startswith(before.lines)
    assert both.count == 2 * SHARD_ROWS
    assert (await read(redis, job, before.end)).lines == both.lines[len(before.lines) :]
    await consume.trim(redis, job, batch)
    assert (await read(redis, job, before.end)).lines == both.lines[len(before.lines) :], "these are there"
    with pytest.raises(Moved):
        await read(redis, job, Place())


async def test_a_record_that_went_back_is_noticed(redis: Redis) -> None:
    job = await submitted(redis, 3 * SHARD_ROWS)
    before = {name: await redis.dump(name) for name in await redis.keys()}
    await answer(redis)
    seen = await read(redis, job, Place())
    await redis.flushall()
    for name, dumped in before.items():
        await redis.restore(name, 0, dumped)
    with pytest.raises(Moved):
        await read(redis, job, seen.end)
    await answer(redis, size=1)
    await answer(redis)
    with pytest.raises(Moved):
        await read(redis, job, seen.end)


async def test_what_is_no_line_is_said_to_be_damaged_and_what_is_no_text_is_read(redis: Redis) -> None:
    job = await submitted(redis, SHARD_ROWS)
    await answer(redis)
    await redis.hset(key("results", job), "3", b"\xff")
    assert b"\n\xff\n" in (await read(redis, job, Place())).lines
    assert "\udcff" in [line async for line in fetch.results(redis, job, order="input")]
    await redis.hset(key("results", job), "3", "two\nlines")
    with pytest.raises(ResponseError, match="damaged"):
        await read(redis, job, Place())


@pytest.mark.parametrize("order", ["input", "done"])
async def test_what_is_left_of_a_job_that_is_being_consumed(redis: Redis, order: Order) -> None:
    job = await submitted(redis, 2 * SHARD_ROWS)
    await answer(redis)
    batch = await consume.take(redis, job)
    assert batch is not None
    await consume.trim(redis, job, batch)
    assert [line async for line in fetch.results(redis, job, order=order)] == []
    await answer(redis)
    left = [json.loads(line)["custom_id"] async for line in fetch.results(redis, job, order=order)]
    assert sorted(left) == sorted(f"r{index}" for index in range(SHARD_ROWS, 2 * SHARD_ROWS))
