"""A shard's life in a worker, on a real Redis: every row has one end."""

import asyncio
import gc

import pytest
from queue_bench import Bench, lines, never, state, submit, until_true

from producer.record import leases
from producer.record.keys import key
from producer.record.leases import Lease
from producer.record.models import CHAT_URL, SHARD_ROWS, Answer, JobState, Outcome, Row
from worker.backoff import Backoff
from worker.engine.protocol import RowError, TransientError


async def test_a_token_runs_a_shard_to_its_end(worker: Bench) -> None:
    job = await submit(worker.redis, SHARD_ROWS)
    await worker.runner.run_token("t")
    assert (await state(worker.redis, job)).state is JobState.COMPLETED
    assert [line["response"]["body"]["n"] for line in await lines(worker.redis, job)] == list(range(SHARD_ROWS))
    assert worker.idle()
    assert worker.metrics.succeeded._value.get() == SHARD_ROWS
    assert worker.metrics.completion_tokens._value.get() == 3 * SHARD_ROWS


async def test_a_shard_that_ended_is_not_given_back(worker: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def release(*_: object, **__: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(leases, "release", release)
    job = await submit(worker.redis, 2 * SHARD_ROWS)
    await worker.runner.run_token("t")
    assert (await state(worker.redis, job)).state is JobState.COMPLETED


async def test_a_token_too_many_costs_nothing(worker: Bench) -> None:
    await worker.runner.run_token("t")
    assert worker.idle()
    assert worker.metrics.claimed_nothing._value.get() == 1


async def test_rows_at_fault_become_error_rows_and_bugs_too(worker: Bench) -> None:
    async def script(row: Row) -> None:
        if row.index == 1:
            raise RowError("too_long", "the prompt is too long")
        if row.index == 2:
            raise ZeroDivisionError

    worker.engine.script = script
    job = await submit(worker.redis, 4)
    await worker.runner.run_token("t")
    errors = [line["error"] and line["error"]["code"] for line in await lines(worker.redis, job)]
    assert errors == [None, "too_long", "internal_error", None]
    assert (await state(worker.redis, job)).failed == 2
    assert worker.idle()


@pytest.mark.parametrize(
    "answer",
    [
        Answer({"n": float("nan")}, 1, 1),
        Answer({"n": {1, 2}}, 1, 1),
        Answer({"n": "\ud800"}, 1, 1),
        Answer({"n": 1}, None, 1),  # type: ignore[arg-type]
        Answer({"n": 1}, 1, "many"),  # type: ignore[arg-type]
    ],
    ids=["nan", "no-json", "surrogate", "none", "text"],
)
async def test_an_answer_that_cannot_be_written_holds_up_no_other(worker: Bench, answer: Answer) -> None:
    async def odd(row: Row, job: str = "") -> Answer:
        return answer if row.index == 1 else Answer({"n": row.index}, True, 2.0)  # type: ignore[arg-type]

    worker.engine.answer = odd  # type: ignore[method-assign]
    job = await submit(worker.redis, 4)
    await worker.runner.run_token("t")
    errors = [line["error"] and line["error"]["code"] for line in await lines(worker.redis, job)]
    assert errors == [None, "internal_error", None, None]
    assert (await state(worker.redis, job)).completion_tokens == 6
    assert worker.idle()


async def test_a_fault_s_words_are_written_whatever_they_are(worker: Bench) -> None:
    async def script(_: Row) -> None:
        raise RowError("odd", "a lone \ud800 surrogate")

    worker.engine.script = script
    job = await submit(worker.redis, 1)
    await worker.runner.run_token("t")
    assert "a lone ? surrogate" in (await lines(worker.redis, job))[0]["error"]["message"]


async def test_one_token_works_off_all_that_waits(worker: Bench) -> None:
    jobs_ = [await submit(worker.redis, 5 * SHARD_ROWS) for _ in range(2)]
    await worker.runner.run_token("t")
    assert worker.engine.jobs == dict.fromkeys(jobs_, 5 * SHARD_ROWS), "the engine knows the job of each row"
    assert [(await state(worker.redis, job)).state for job in jobs_] == [JobState.COMPLETED] * 2
    assert worker.metrics.claimed._value.get() == 10


async def test_a_fault_that_passes_is_tried_again_and_one_that_stays_is_not(
    worker: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "wait", lambda _: asyncio.sleep(0))

    async def script(row: Row) -> None:
        match row.index:
            case 0 if worker.engine.begun[0] < 3:
                raise TransientError("internal_error", "no memory just now")
            case 1:
                raise TransientError("internal_error", "no memory ever")
            case 2:
                raise RowError("too_long", "the prompt is too long")

    worker.engine.script = script
    job = await submit(worker.redis, 4)
    await worker.runner.run_token("t")
    errors = [line["error"] and line["error"]["message"] for line in await lines(worker.redis, job)]
    assert errors == [None, "no memory ever", "the prompt is too long", None]
    assert worker.engine.begun == {0: 3, 1: 3, 2: 1, 3: 1}


async def test_results_that_redis_refuses_stop_the_job_and_lose_no_row(worker: Bench) -> None:
    job = await submit(worker.redis, 4)
    other = await submit(worker.redis, 4)
    await worker.redis.set(key("finished", job), "not a list")
    await worker.runner.run_token("t")
    stopped = await state(worker.redis, job)
    assert stopped.state is JobState.PAUSED
    assert "Redis refuses its results" in stopped.reason
    assert await worker.redis.hlen(key("rows", job, 0)) == 4
    assert (await state(worker.redis, other)).state is JobState.COMPLETED


async def test_an_outcome_that_waits_for_redis_is_held_by_the_buffer_alone(
    worker: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcomes() -> set[str]:
        gc.collect()
        return {each.line for each in gc.get_objects() if isinstance(each, Outcome)}  # a line has an id that is unique

    def answers() -> int:
        return sum(isinstance(each, Answer) for each in gc.get_objects())

    of_other_tests, their_answers = outcomes(), answers()
    waiting, redis_is_back = [], asyncio.Event()

    async def put(_: Lease, outcome: Outcome) -> bool:
        waiting.append(outcome.index)
        del outcome  # as when it is put on disk
        await redis_is_back.wait()
        return True

    monkeypatch.setattr(worker.buffer, "put", put)
    await submit(worker.redis, 8)
    running = asyncio.create_task(worker.runner.run_token("t"))
    await until_true(lambda: len(waiting) == 8)
    assert outcomes() <= of_other_tests
    assert answers() <= their_answers
    redis_is_back.set()
    worker.runner.drain()
    await running


async def test_a_row_that_nobody_can_read_is_an_error_and_the_others_are_answered(worker: Bench) -> None:
    def row(index: int) -> str:
        return Row(index, index + 1, f"r{index}", CHAT_URL, {"n": index}).to_json()

    job = await submit(worker.redis, 4)
    for index, text in (
        ("1", "garbage"),
        ("2", "[" * 10**5),
        ("3", '{"line": "x", "custom_id": 1, "url": 2, "body": 3}'),
        ("03", row(3)),
    ):
        await worker.redis.hset(key("rows", job, 0), index, text)
    await worker.runner.run_token("t")
    errors = [line["error"] and line["error"]["code"] for line in await lines(worker.redis, job)]
    assert errors == [None] + 3 * ["unreadable_row"]
    assert "unreadable_row" in await worker.redis.hget(key("results", job), "03")
    assert not await worker.redis.exists(key("rows", job, 0))
    assert (await state(worker.redis, job)).state is JobState.COMPLETED


async def test_draining_ends_what_runs_and_gives_the_rest_back(worker: Bench) -> None:
    gate = asyncio.Event()

    async def script(_: Row) -> None:
        await gate.wait()

    worker.engine.script = script
    job = await submit(worker.redis, SHARD_ROWS)
    running = asyncio.create_task(worker.runner.run_token("t"))
    await until_true(lambda: len(worker.engine.begun) == worker.appetite.rows)
    worker.runner.drain()
    await asyncio.sleep(0.05)
    assert not running.done()
    gate.set()
    await running
    assert (await state(worker.redis, job)).done == worker.appetite.rows < SHARD_ROWS
    assert len(worker.engine.begun) == worker.appetite.rows
    assert worker.idle()
    assert await worker.redis.zcard(key("open", job)) == 1


async def test_abandoning_takes_rows_out_of_the_engine_and_keeps_what_is_answered(worker: Bench) -> None:
    async def script(row: Row) -> None:
        if row.index > 2:
            await asyncio.Event().wait()

    worker.engine.script = script
    job = await submit(worker.redis, 6)
    running = asyncio.create_task(worker.runner.run_token("t"))
    await until_true(lambda: len(worker.engine.begun) == 6)
    worker.runner.abandon()
    await running
    assert (await state(worker.redis, job)).done == 3
    assert sorted(worker.engine.cancelled) == [3, 4, 5]
    assert worker.idle()
    assert await worker.redis.zcard(key("open", job)) == 1


async def test_a_lost_lease_stops_its_rows_and_writes_nothing(worker: Bench) -> None:
    worker.engine.script = never
    job = await submit(worker.redis, 4)
    running = asyncio.create_task(worker.runner.run_token("t"))
    await until_true(lambda: len(worker.engine.begun) == 4)
    await worker.redis.zadd(key("leases"), {f"{job} 0": 1})
    assert await leases.reap(worker.redis) == [(job, 0)]
    await worker.keeper.renew()
    await until_true(lambda: sorted(worker.engine.cancelled) == [0, 1, 2, 3])
    worker.runner.abandon()  # it has claimed the shard anew, as any worker may
    await asyncio.wait_for(running, 5)
    assert (await state(worker.redis, job)).done == 0
    assert worker.metrics.leases_lost._value.get() == 1
    assert worker.idle()
