"""The worker's queue on a real Redis, with engines that are scripted."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from arq.constants import in_progress_key_prefix
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from producer.record import jobs, leases
from producer.record.connection import connect
from producer.record.jobs import Submission
from producer.record.keys import key
from producer.record.leases import CONDEMNED
from producer.record.models import CHAT_URL, SHARD_ROWS, Answer, JobState, Row
from worker.backoff import Backoff
from worker.engine.protocol import EngineDead, RowError, TransientError
from worker.metrics import Metrics
from worker.queue import tokens
from worker.queue.appetite import Appetite
from worker.queue.buffer import ResultBuffer
from worker.queue.health import RedisHealth
from worker.queue.keeper import Keeper
from worker.queue.shards import ShardRunner
from worker.queue.tokens import Tokens


class ScriptedEngine:
    """Answers as `script` says, and counts."""

    def __init__(self, script: Callable[[Row], Awaitable[None]]) -> None:
        self.script = script
        self.begun: Counter[int] = Counter()
        self.cancelled: Counter[int] = Counter()

    async def answer(self, row: Row) -> Answer:
        self.begun[row.index] += 1
        try:
            await self.script(row)
        except asyncio.CancelledError:
            self.cancelled[row.index] += 1
            raise
        return Answer({"n": row.index, "usage": {}}, 2, 3)


@dataclass
class Bench:
    """A worker's queue without its process."""

    redis: Redis
    url: str
    engine: ScriptedEngine
    appetite: Appetite
    keeper: Keeper
    buffer: ResultBuffer
    runner: ShardRunner
    metrics: Metrics

    def new(self, engine: ScriptedEngine, capacity: int = 8) -> "Bench":
        """Another worker at the same Redis; its buffer must be run by the caller."""
        return bench(self.redis, self.url, engine, capacity)

    def idle(self) -> bool:
        """Nothing is held, in the engine, or counted as waiting any more."""
        return (
            self.appetite._seats._value == self.appetite.rows
            and self.appetite._waiting == 0
            and not self.keeper._leases
            and not self.keeper._tokens
            and self.metrics.rows_in_flight._value.get() == 0
        )


def bench(redis: Redis, url: str, engine: ScriptedEngine, capacity: int = 8) -> Bench:
    metrics = Metrics(CollectorRegistry())
    health = RedisHealth(metrics)
    keeper, buffer, appetite = Keeper(redis), ResultBuffer(redis, metrics, health), Appetite(capacity)
    runner = ShardRunner(
        redis, engine, served="target", appetite=appetite, keeper=keeper, buffer=buffer, metrics=metrics, health=health
    )
    return Bench(redis, url, engine, appetite, keeper, buffer, runner, metrics)


async def _at_once(_: Row) -> None:
    return


async def _never(_: Row) -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def worker(redis_url: str) -> AsyncIterator[Bench]:
    async with connect(redis_url) as redis:
        made = bench(redis, redis_url, ScriptedEngine(_at_once))
        writing = asyncio.create_task(made.buffer.run())
        yield made
        writing.cancel()


async def submit(redis: Redis, rows: int) -> str:
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(rows):
        row = Row(index, index + 1, f"r{index}", CHAT_URL, {"n": index})
        await staged.add(row, row.to_json())
    return await staged.commit(staged.job_id, insist=True)


async def lines(redis: Redis, job: str) -> list[dict]:
    return [json.loads(line) async for line in jobs.results(redis, job, order="input")]


async def state(redis: Redis, job: str) -> jobs.JobStatus:
    found = await jobs.status(redis, job)
    assert found is not None
    return found


async def until_true(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not check():
            await asyncio.sleep(0.005)


async def test_a_token_runs_a_shard_to_its_end(worker: Bench) -> None:
    job = await submit(worker.redis, SHARD_ROWS)
    await worker.runner.run_token("t")
    assert (await state(worker.redis, job)).state is JobState.COMPLETED
    assert [line["response"]["body"]["n"] for line in await lines(worker.redis, job)] == list(range(SHARD_ROWS))
    assert worker.idle()
    assert worker.metrics.succeeded._value.get() == SHARD_ROWS
    assert worker.metrics.completion_tokens._value.get() == 3 * SHARD_ROWS


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
    async def odd(row: Row) -> Answer:
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
    assert [(await state(worker.redis, job)).state for job in jobs_] == [JobState.COMPLETED] * 2
    assert worker.metrics.claimed._value.get() == 10


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


async def test_a_row_that_nobody_can_read_is_an_error_and_the_others_are_answered(worker: Bench) -> None:
    job = await submit(worker.redis, 4)
    for index, text in (
        ("1", "garbage"),
        ("2", "[" * 10**5),
        ("3", '{"line": "x", "custom_id": 1, "url": 2, "body": 3}'),
    ):
        await worker.redis.hset(key("rows", job, 0), index, text)
    await worker.runner.run_token("t")
    errors = [line["error"] and line["error"]["code"] for line in await lines(worker.redis, job)]
    assert errors == [None] + 3 * ["unreadable_row"]
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
    worker.engine.script = _never
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


async def test_renewing_keeps_leases_and_tokens(worker: Bench) -> None:
    worker.engine.script = _never
    job = await submit(worker.redis, 4)
    await worker.redis.set(in_progress_key_prefix + "t", "1", px=500)
    running = asyncio.create_task(worker.runner.run_token("t"))
    await until_true(lambda: len(worker.engine.begun) == 4)
    await worker.redis.zadd(key("leases"), {f"{job} 0": 1})
    await worker.keeper.renew()
    assert await leases.reap(worker.redis) == []
    assert await worker.redis.pttl(in_progress_key_prefix + "t") > 5000
    worker.runner.abandon()
    await running


async def test_results_wait_for_redis_and_are_counted_once(worker: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0
    real = leases.finish

    async def finish(redis: Redis, batches: object) -> list[int | None]:
        nonlocal tries
        tries += 1
        if tries <= 2:
            if tries == 2:
                await real(redis, batches)  # written, but the answer is lost on the way
            raise RedisConnectionError("away")
        return await real(redis, batches)

    monkeypatch.setattr(leases, "finish", finish)
    job = await submit(worker.redis, SHARD_ROWS - 1)
    staged = await submit(worker.redis, 1)
    await asyncio.gather(worker.runner.run_token("t"), worker.runner.run_token("u"))
    assert tries >= 3
    for each, rows in ((job, SHARD_ROWS - 1), (staged, 1)):
        done = await state(worker.redis, each)
        assert (done.state, done.done) == (JobState.COMPLETED, rows)
    assert worker.idle()


async def test_tokens_are_topped_up_for_waiting_shards_and_no_further(worker: Bench) -> None:
    arq = tokens.connect(worker.url, "target")
    queue = Tokens(
        arq,
        served="target",
        slots=2,
        run_token=worker.runner.run_token,
        metrics=worker.metrics,
        health=RedisHealth(worker.metrics),
    )
    await queue.top_up()
    assert await worker.redis.zcard(key("tokens", "target")) == 0
    await submit(worker.redis, 3 * SHARD_ROWS)
    for _ in range(2):
        await queue.top_up()
        assert await worker.redis.zcard(key("tokens", "target")) == 3
    assert worker.metrics.queue_shards._value.get() == 3
    # Tokens that somebody runs do not count: their holder may wait, another worker must find one.
    for token in await worker.redis.zrange(key("tokens", "target"), 0, 1):
        await worker.redis.set(in_progress_key_prefix + token, "1")
    await submit(worker.redis, 30 * SHARD_ROWS)
    await queue.top_up()
    assert await worker.redis.zcard(key("tokens", "target")) == 2 + 2 * 2
    await arq.aclose()


async def test_nothing_on_arq_s_wire_is_pickle(worker: Bench) -> None:
    arq = tokens.connect(worker.url, "target")
    queue = Tokens(
        arq,
        served="target",
        slots=2,
        run_token=worker.runner.run_token,
        metrics=worker.metrics,
        health=RedisHealth(worker.metrics),
    )
    await submit(worker.redis, 1)
    await queue.top_up()
    (name,) = await worker.redis.keys("arq:job:*")
    assert json.loads(await worker.redis.get(name))["f"] == "run_shard"
    await arq.aclose()


async def test_two_workers_answer_every_row_of_two_jobs_once_through_arq(worker: Bench) -> None:
    async def script(row: Row) -> None:
        await asyncio.sleep(0.001 * (row.index % 7))

    other = worker.new(ScriptedEngine(script))
    worker.engine.script = script
    writing = asyncio.create_task(other.buffer.run())
    ids = [await submit(worker.redis, 80), await submit(worker.redis, 83)]
    queues, running = [], []
    for each in (worker, other):
        arq = tokens.connect(each.url, "target")
        queue = Tokens(
            arq,
            served="target",
            slots=each.appetite.slots,
            run_token=each.runner.run_token,
            metrics=each.metrics,
            health=RedisHealth(each.metrics),
        )
        await queue.top_up()
        queues.append(queue)
        running.append(asyncio.create_task(queue.run()))
    async with asyncio.timeout(20):
        while not all([(await state(worker.redis, job)).state.ended for job in ids]):
            await queues[0].top_up()
            await asyncio.sleep(0.05)
    for each in (worker, other):
        each.runner.drain()
    for queue, task in zip(queues, running, strict=True):
        await queue.drain()
        await task
    for job, rows in zip(ids, (80, 83), strict=True):
        assert [line["custom_id"] for line in await lines(worker.redis, job)] == [f"r{n}" for n in range(rows)]
        assert (await state(worker.redis, job)).done == rows
    assert sum((worker.engine.begun + other.engine.begun).values()) == 163
    assert worker.engine.begun
    assert other.engine.begun
    assert worker.idle()
    assert other.idle()
    writing.cancel()
