"""A side that is the whole product: rows through a Redis of its own to a worker, and their results back into it."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from producer.intake.submission import submit_lines
from producer.record import fleet, jobs
from producer.record.connection import connect
from producer.record.jobs import JobStatus
from producer.server.embedded import EmbeddedRedis
from worker.engine.supervisor import EngineSupervisor
from worker.engine.vllm import VllmEngine
from worker.lab import numbers
from worker.lab.follow import StageLog
from worker.lab.numbers import Request
from worker.lab.side_common import Answered, TokenTimes, Told, texts_of
from worker.metrics import Metrics
from worker.service import Service

#: As `producer watch` asks (seconds).
_POLL_S = 0.25
_DRAIN_S = 30.0


@asynccontextmanager
async def opened(told: Told) -> AsyncIterator[Callable[[], Awaitable[Answered]]]:
    """Redis and the worker from start to end."""
    options = told.options
    log, times = StageLog(), TokenTimes()
    server = EmbeddedRedis(told.rows.parent / "redis")
    server.start()
    try:
        async with connect(server.url) as redis:
            service = Service(
                redis,
                server.url,
                EngineSupervisor(lambda: VllmEngine(options, log)),
                served=options.served_model_name,
                mode=options.mode,
                drain_seconds=_DRAIN_S,
                metrics=Metrics(CollectorRegistry()),
            )
            serving = asyncio.create_task(service.run())

            async def turn() -> Answered:
                log.take()
                ended = await _run(redis, told)
                bodies = [json.loads(line) async for line in jobs.results(redis, ended.job_id, order="input")]
                records = log.take()
                assert ended.created is not None
                assert ended.ended is not None
                since = time.monotonic() - time.time()  # the clock of the records
                whole = Request(ended.created + since, ended.ended + since, ended.completion_tokens)
                measured = numbers.turn(options.mode, records, [whole], options.max_num_seqs, times.take())
                return Answered(measured, texts_of(body["response"]["body"] for body in bodies), records)

            try:
                while not any(card.state == "ready" for card in await fleet.living(redis)):
                    done, _ = await asyncio.wait([serving], timeout=_POLL_S)
                    if done:
                        serving.result()
                await turn()  # a warm-up
                yield turn
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # as a worker is told to stop
                await serving
    finally:
        server.stop()


async def _run(redis: Redis, told: Told) -> JobStatus:
    """Submit the rows and wait for the last result."""
    with told.rows.open("rb") as stream:
        submitted = await submit_lines(
            redis, stream, model=told.options.served_model_name, name=told.rows.name, new=True
        )
    while True:
        seen = await jobs.status(redis, submitted.job_id)
        assert seen is not None
        if seen.state.ended:
            assert seen.failed == 0, f"{seen.failed} rows failed"
            return seen
        await asyncio.sleep(_POLL_S)
