"""Rows that ask the same get one answer, each its own line: from the file to the result, and when things go wrong."""

import asyncio
import json
from typing import Any

import pytest
from given_lines import GivenLines
from queue_bench import Bench, lines, state, until_true

from producer.intake.submission import Submitted, submit_lines
from producer.record import control, leases
from producer.record.keys import key
from producer.record.leases import CONDEMNED
from producer.record.models import JobState, Outcome, Row
from worker.backoff import Backoff
from worker.engine.protocol import EngineDead, RowError

LEASE_MS = 60_000


def rows(count: int, distinct: int) -> bytes:
    return b"\n".join(b'{"custom_id": "r%d", "prompt": "p%d"}' % (n, n % distinct) for n in range(count))


async def submit(worker: Bench, data: bytes, **options: Any) -> Submitted:
    return await submit_lines(
        worker.redis, GivenLines(data), model="target", name="test", dedupe=True, new=True, **options
    )


async def test_a_thousand_rows_of_ten_prompts_cost_ten_answers(worker: Bench) -> None:
    submitted = await submit(worker, rows(1000, 10))
    assert submitted.copies == 990
    await worker.runner.run_token("t")
    assert sum(worker.engine.begun.values()) == 10
    done = await state(worker.redis, submitted.job_id)
    assert (done.state, done.rows, done.done, done.failed) == (JobState.COMPLETED, 1000, 1000, 0)
    assert (done.dedupe, done.copies) == (True, 990)
    assert (done.prompt_tokens, done.completion_tokens) == (20, 30), "what was computed, not what was answered"
    found = await lines(worker.redis, submitted.job_id)
    assert [line["custom_id"] for line in found] == [f"r{number}" for number in range(1000)]
    assert [line["response"]["body"]["n"] for line in found] == [number % 10 for number in range(1000)]
    assert len({line["id"] for line in found}) == 1000
    assert worker.idle()


async def test_without_it_every_row_is_computed(worker: Bench) -> None:
    await submit_lines(worker.redis, GivenLines(rows(40, 10)), model="target", name="test")
    await worker.runner.run_token("t")
    assert sum(worker.engine.begun.values()) == 40


async def test_parameters_make_rows_different_and_defaults_may_make_them_equal(worker: Bench) -> None:
    asked = [
        {"prompt": "a", "seed": 1},
        {"seed": 1, "prompt": "a"},
        {"prompt": "a", "seed": 2},
        {"prompt": "a"},
        {"messages": [{"role": "user", "content": "a"}]},
    ]
    data = b"\n".join(json.dumps(each).encode() for each in asked)
    submitted = await submit(worker, data, defaults={"seed": 2})
    assert submitted.copies == 1
    await worker.runner.run_token("t")
    assert sorted(worker.engine.begun) == [0, 2, 4], "rows 2 and 3 are equal once the defaults are in them"


async def test_copies_share_a_failure_and_are_tried_again_together(worker: Bench) -> None:
    async def script(row: Row) -> None:
        if row.body["prompt"] == "p1":
            raise RowError("too_long", "the prompt is too long")

    worker.engine.script = script
    submitted = await submit(worker, rows(30, 3))
    await worker.runner.run_token("t")
    done = await state(worker.redis, submitted.job_id)
    assert (done.state, done.failed) == (JobState.COMPLETED, 10)
    errors = [line["error"] for line in await lines(worker.redis, submitted.job_id)]
    assert [error["line"] for error in errors if error] == list(range(2, 31, 3))
    assert sum(worker.engine.begun.values()) == 3
    worker.engine.script = lambda _: asyncio.sleep(0)  # type: ignore[assignment,return-value]
    assert await control.retry(worker.redis, submitted.job_id) == 10
    await worker.runner.run_token("t")
    assert (await state(worker.redis, submitted.job_id)).failed == 0
    assert sum(worker.engine.begun.values()) == 4


async def test_copies_that_failed_in_many_shards_are_computed_once_when_they_run_again(worker: Bench) -> None:
    async def script(row: Row) -> None:
        raise RowError("bad", "bad")

    worker.engine.script = script
    submitted = await submit(worker, rows(300, 20))
    await worker.runner.run_token("t")
    assert sum(worker.engine.begun.values()) == 20
    assert await control.retry(worker.redis, submitted.job_id) == 300
    await worker.runner.run_token("t")
    assert sum(worker.engine.begun.values()) == 40
    assert (await state(worker.redis, submitted.job_id)).failed == 300


@pytest.mark.parametrize(("bound", "most"), [("MOST_ROWS", 50), ("MOST_BYTES", 5000)])
async def test_a_shard_that_runs_again_stays_small(
    worker: Bench, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    async def script(row: Row) -> None:
        raise RowError("bad", "bad")

    worker.engine.script = script
    submitted = await submit(worker, rows(100, 1))
    await worker.runner.run_token("t")
    monkeypatch.setattr(control, bound, most)
    await control.retry(worker.redis, submitted.job_id)
    waiting = await worker.redis.zrange(key("open", submitted.job_id), 0, -1)
    found = [await worker.redis.hvals(key("rows", submitted.job_id, shard)) for shard in waiting]
    assert [len(stored) for stored in found] in ([50, 50], [66, 34])
    assert bound == "MOST_ROWS" or all(len("".join(stored)) <= most for stored in found)


async def test_what_is_left_of_a_group_is_computed_by_the_next_worker(worker: Bench) -> None:
    submitted = await submit(worker, rows(6, 2))
    claim = await leases.claim(worker.redis, served="target", lease_ms=LEASE_MS)
    assert claim is not None
    assert [[row.index for row in group] for group in claim.prompts] == [[0, 2, 4], [1, 3, 5]]
    await leases.finish(worker.redis, [(claim.lease, [_line(0), _line(1), _line(3), _line(5)])])
    await leases.release(worker.redis, claim.lease, lost=True)
    await worker.runner.run_token("t")
    assert worker.engine.begun == {2: 1}
    assert (await state(worker.redis, submitted.job_id)).done == 6


def _line(index: int) -> Outcome:
    return Outcome(index, '{"custom_id": "x"}', failed=False)


async def test_an_engine_that_dies_of_a_prompt_dies_of_its_group_not_of_each_copy(
    worker: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "wait", lambda _: asyncio.sleep(0))
    deaths = 0

    async def script(row: Row) -> None:
        nonlocal deaths
        if row.body["prompt"] == "p1":
            deaths += 1
            raise EngineDead("gone")

    worker.engine.script = script
    submitted = await submit(worker, rows(200, 4))
    await worker.runner.run_token("t")
    done = await state(worker.redis, submitted.job_id)
    assert (done.state, done.done, done.failed) == (JobState.COMPLETED, 200, 50)
    assert deaths == CONDEMNED
    codes = {line["error"]["code"] for line in await lines(worker.redis, submitted.job_id) if line["error"]}
    assert codes == {"poison_row"}


async def test_abandoned_copies_are_given_back_with_their_first(worker: Bench) -> None:
    async def never(_: Row) -> None:
        await asyncio.Event().wait()

    worker.engine.script = never
    submitted = await submit(worker, rows(100, 2))
    running = asyncio.create_task(worker.runner.run_token("t"))
    await until_true(lambda: len(worker.engine.begun) == 2)
    worker.runner.abandon()
    await running
    assert (await state(worker.redis, submitted.job_id)).done == 0
    assert await worker.redis.zcard(key("open", submitted.job_id)) == 1
    assert await worker.redis.hlen(key("rows", submitted.job_id, 0)) == 100
    assert worker.idle()
