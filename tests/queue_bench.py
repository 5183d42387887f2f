"""A worker's queue on a real Redis, without its process: engines are scripted."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from producer.record import fetch, jobs
from producer.record.models import CHAT_URL, Answer, Row
from producer.record.submission import Submission
from worker.engine.protocol import EngineDown
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
        self.jobs: Counter[str] = Counter()
        self.cancelled: Counter[int] = Counter()
        self.lives = asyncio.Event()
        self.lives.set()

    async def ready(self) -> None:
        await self.lives.wait()

    async def answer(self, row: Row, job: str = "") -> Answer:
        if not self.lives.is_set():
            raise EngineDown("none")
        self.begun[row.index] += 1
        self.jobs[job] += 1
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

    @asynccontextmanager
    async def tokens(self, slots: int) -> AsyncIterator[Tokens]:
        """This worker's part of arq."""
        async with tokens.connect(self.url, "target") as arq:
            yield Tokens(
                arq,
                served="target",
                slots=slots,
                run_token=self.runner.run_token,
                metrics=self.metrics,
                health=RedisHealth(self.metrics),
            )

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


async def at_once(_: Row) -> None:
    return


async def never(_: Row) -> None:
    await asyncio.Event().wait()


async def submit(redis: Redis, rows: int) -> str:
    staged = await Submission.begin(redis, model="target", name="test")
    for index in range(rows):
        row = Row(index, index + 1, f"r{index}", CHAT_URL, {"n": index})
        await staged.add(row, row.to_json())
    return await staged.commit(staged.job_id, insist=True)


async def lines(redis: Redis, job: str) -> list[dict]:
    return [json.loads(line) async for line in fetch.results(redis, job, order="input")]


async def state(redis: Redis, job: str) -> jobs.JobStatus:
    found = await jobs.status(redis, job)
    assert found is not None
    return found


async def until_true(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not check():
            await asyncio.sleep(0.005)
