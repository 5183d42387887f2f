"""The worker as a whole: the engine, the queue and the background duties, from start to drained."""

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from redis.asyncio import Redis
from redis.exceptions import RedisError

from producer.record import fleet
from producer.record.fleet import WorkerCard
from producer.record.provenance import EngineFacts
from worker.engine.supervisor import EngineSupervisor
from worker.metrics import Metrics
from worker.queue import tokens
from worker.queue.appetite import Appetite
from worker.queue.buffer import ResultBuffer
from worker.queue.health import RedisHealth
from worker.queue.keeper import LEASE_MS, RENEW_SECONDS, Keeper
from worker.queue.notes import Notes
from worker.queue.periodic import every
from worker.queue.reaper import REAP_SECONDS, SWEEP_SECONDS, reap, sweep
from worker.queue.shards import ShardRunner
from worker.queue.tokens import TOP_UP_SECONDS, Tokens
from worker.until import until

log = logging.getLogger(__name__)

#: How long the last results and leases may take to reach Redis once nothing runs any more.
GIVE_UP_SECONDS = 10.0

#: The same after a second signal.
HURRY_SECONDS = 2.0


class Service:
    """One worker process. `run` returns when it has been told to stop and everything is given back.

    Args:
        redis: where the queue is.
        redis_url: the same, for arq.
        engine: answers the rows.
        served: the model name that jobs ask for.
        mode: `ar`, `sd`, `psd` or `fake`.
        drain_seconds: how long rows in the engine may take to end.
        metrics: counts.
        facts: what the engine computes with, as far as it is known when this is called.
    """

    def __init__(
        self,
        redis: Redis,
        redis_url: str,
        engine: EngineSupervisor,
        *,
        served: str,
        mode: str,
        drain_seconds: float,
        metrics: Metrics,
        facts: Callable[[], EngineFacts] | None = None,
    ) -> None:
        self._redis = redis
        self._redis_url = redis_url
        self._engine = engine
        self._drain_seconds = drain_seconds
        self._metrics = metrics
        host, pid = socket.gethostname(), os.getpid()
        self._card = WorkerCard(
            worker_id=f"{host}-{pid}-{secrets.token_hex(3)}",
            model=served,
            mode=mode,
            slots=0,
            state="starting",
            host=host,
            pid=pid,
        )
        metrics.describe(self._card)
        self._health = RedisHealth(metrics)
        told = facts or (lambda: EngineFacts(model=served, mode=mode))
        self._notes = Notes(redis, self._card.worker_id, told, metrics.stats)
        self._draining = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain; a second signal cuts the draining short.

        Raises:
            EngineStartError: the engine cannot start.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        beats = asyncio.create_task(every(RENEW_SECONDS, "heartbeat", self._beat, self._health))
        try:
            log.info("worker %s starts its engine", self._card.worker_id)
            if await until(self._engine.start(), self._draining):
                await self._serve()
        finally:
            beats.cancel()
            await asyncio.wait([beats])
            log.info("ending the engine")
            await self._engine.close()
            with suppress(RedisError, OSError):  # else (a TimeoutError is an OSError) the heartbeat runs out by itself
                async with asyncio.timeout(HURRY_SECONDS):
                    await self._notes.write()  # what the engine counted until it ended
                    await fleet.retire(self._redis, self._card.worker_id)

    def _stop(self) -> None:
        if self._draining.is_set():
            log.warning("stopping at once")
            self._hurry.set()
        else:
            log.info("draining: no new rows; those in the engine have %g s", self._drain_seconds)
            self._draining.set()

    async def _announce(self) -> None:
        card = replace(self._card, stats=self._metrics.stats())
        await fleet.announce(self._redis, card, lease_ms=LEASE_MS)

    async def _beat(self) -> None:
        await self._announce()
        await self._notes.write()

    async def _become(self, state: str, *, slots: int = 0) -> None:
        self._card = replace(self._card, state=state, slots=slots)
        with suppress(RedisError, OSError):  # else the next heartbeat says it
            await self._announce()

    async def _serve(self) -> None:
        """Answer rows; every duty below runs until it is cancelled, and one that fails ends the worker."""
        served, redis, metrics, health = self._card.model, self._redis, self._metrics, self._health
        appetite = Appetite(self._engine.capacity)
        keeper, buffer = Keeper(redis), ResultBuffer(redis, metrics, health, self._notes.ended)
        runner = ShardRunner(
            redis,
            self._engine,
            served=served,
            appetite=appetite,
            keeper=keeper,
            buffer=buffer,
            metrics=metrics,
            health=health,
        )
        async with tokens.connect(self._redis_url, served) as arq, asyncio.TaskGroup() as group:
            queue = Tokens(
                arq,
                served=served,
                slots=appetite.slots,
                run_token=runner.run_token,
                metrics=metrics,
                health=health,
            )
            duties = [
                group.create_task(duty)
                for duty in (
                    buffer.run(),
                    self._notes.run(),
                    every(RENEW_SECONDS, "leases", keeper.renew, health),
                    every(REAP_SECONDS, "reaper", lambda: reap(redis, metrics, health), health),
                    every(SWEEP_SECONDS, "sweeper", lambda: sweep(redis), health),
                    every(TOP_UP_SECONDS, "tokens", queue.top_up, health),
                    queue.run(),
                )
            ]
            await self._become("ready", slots=appetite.slots)
            log.info("serving %r: %d rows at once", served, self._engine.capacity)
            await self._draining.wait()
            runner.drain()
            told = group.create_task(self._become("draining"))
            await self._drain(runner, queue)
            told.cancel()
            for duty in duties:
                duty.cancel()
        log.info("drained")

    async def _drain(self, runner: ShardRunner, queue: Tokens) -> None:
        drained = asyncio.create_task(queue.drain())
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([drained, hurry], timeout=self._drain_seconds, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        runner.abandon()
        # Only Redis can hold this up now. What it does not take is not lost: those rows run again.
        _, stuck = await asyncio.wait([drained], timeout=HURRY_SECONDS if self._hurry.is_set() else GIVE_UP_SECONDS)
        if stuck:
            log.warning("Redis does not take the last results; their rows will run again")
            drained.cancel()
