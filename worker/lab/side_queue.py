"""A side that is the whole product: rows through a Redis of its own to a worker, and their results back into it."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from redis.asyncio import Redis

from producer.intake.sources import open_source
from producer.intake.submission import submit_lines
from producer.record import fetch, fleet, jobs
from producer.record.connection import connect
from producer.record.jobs import JobStatus
from producer.server.embedded import EmbeddedRedis
from worker.engine.stage_metrics import StageMetrics
from worker.engine.supervisor import EngineSupervisor
from worker.engine.vllm import VllmEngine
from worker.lab import numbers
from worker.lab.follow import StageLog
from worker.lab.numbers import Request
from worker.lab.side_common import Answered, TokenTimes, Told, body_of, texts_of
from worker.metrics import Metrics
from worker.metrics_server import serve_metrics
from worker.service import Service

#: As `producer watch` asks (seconds).
_POLL_S = 0.25
_DRAIN_S = 30.0


@asynccontextmanager
async def opened(told: Told) -> AsyncIterator[Callable[[], Awaitable[Answered]]]:
    """Redis and the worker from start to end, with its /metrics page: imagined devices can be watched on a board."""
    with TemporaryDirectory(prefix="bench-redis-") as folder:
        server = EmbeddedRedis(Path(folder))
        server.start()
        try:
            async with connect(server.url) as redis:
                with serve_metrics("127.0.0.1", None):
                    async with _working(redis, server.url, told) as turn:
                        yield turn
        finally:
            server.stop()


@asynccontextmanager
async def _working(redis: Redis, url: str, told: Told) -> AsyncIterator[Callable[[], Awaitable[Answered]]]:
    options = told.options
    readers, times = _Readers(StageLog(), StageMetrics()), TokenTimes()
    service = Service(
        redis,
        url,
        EngineSupervisor(lambda: VllmEngine(options, readers)),
        served=options.served_model_name,
        mode=options.mode,
        drain_seconds=_DRAIN_S,
        metrics=Metrics(),
    )
    serving = asyncio.create_task(service.run())

    async def turn() -> Answered:
        readers.log.take()
        job = await _run(redis, told)
        lines = [json.loads(line) async for line in fetch.results(redis, job.job_id, order="input")]
        records = readers.log.take()
        assert job.created is not None
        assert job.ended is not None
        since = time.monotonic() - time.time()  # the clock of the records
        whole = Request(job.created + since, job.ended + since, job.completion_tokens)
        measured = numbers.turn(options.mode, records, [whole], options.max_num_seqs, times.take())
        return Answered(measured, texts_of(map(body_of, lines)), records)

    try:
        while not any(card.state == "ready" for card in await fleet.living(redis)):
            ended, _ = await asyncio.wait([serving], timeout=_POLL_S)
            if ended:
                serving.result()
        await turn()  # a warm-up
        yield turn
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # as a worker is told to stop
        await serving


class _Readers:
    """What a worker does with stage records, and what a bench does."""

    def __init__(self, log: StageLog, metrics: StageMetrics) -> None:
        self.log, self._metrics = log, metrics

    def follow(self, folder: Path) -> None:
        """See `StageFollower`."""
        self.log.follow(folder)
        self._metrics.follow(folder)

    def update(self) -> None:
        """See `StageFollower`."""
        self.log.update()
        self._metrics.update()


async def _run(redis: Redis, told: Told) -> JobStatus:
    """Submit the rows and wait for the last result."""
    source = open_source([str(told.rows)])
    submitted = await submit_lines(redis, source, model=told.options.served_model_name, name=told.rows.name, new=True)
    while True:
        seen = await jobs.status(redis, submitted.job_id)
        assert seen is not None
        if seen.state.ended:
            return seen
        await asyncio.sleep(_POLL_S)
