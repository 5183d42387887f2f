"""arq's part: tokens that say "there is work", handed out by arq's worker loop, topped up from the record.

Whoever runs a token claims shards until the record has none left, so the pace of tokens bounds nothing.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast
from uuid import uuid4

from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix, job_key_prefix, retry_key_prefix
from arq.jobs import serialize_job
from arq.utils import timestamp_ms
from arq.worker import Worker, func
from redis.exceptions import RedisError

from producer.record import fleet, scripts
from producer.record.connection import heed_cancel, pool_for
from producer.record.keys import key
from worker.backoff import Backoff
from worker.metrics import Metrics
from worker.queue.health import MOST_SECONDS, WORKER_PATIENCE, RedisHealth
from worker.queue.keeper import LEASE_MS

log = logging.getLogger(__name__)

#: How often tokens are topped up: the longest that a new job waits for an idle fleet.
TOP_UP_SECONDS = 0.5

#: How often arq looks for tokens while slots are free.
POLL_SECONDS = 0.1

#: Tokens kept waiting for each slot of the fleet. A token too many is an empty claim, one too few an idle slot.
_TOKENS_A_SLOT = 2

_FUNCTION = "run_shard"

#: What health calls arq's loop.
_CALLER = "queue"

#: arq counts pickups, the record counts attempts: arq must never give a token up.
_ENDLESS_TRIES = 2**31


def connect(url: str, served: str) -> ArqRedis:
    """arq's client for the queue of the model `served`. JSON on the wire: arq's default, pickle, runs code."""
    client = cast(ArqRedis, ArqRedis.from_pool(pool_for(url, WORKER_PATIENCE)))
    client.job_serializer = _serialize
    client.job_deserializer = json.loads
    client.default_queue_name = key("tokens", served)
    return client


def _serialize(token: dict[str, Any]) -> bytes:
    return json.dumps(token, default=str).encode()  # what arq keeps of a token that failed has an exception in it


class _Loop(Worker):
    """arq's worker, cheaper in its ways with Redis, and unharmed by what it finds there."""

    def __init__(
        self,
        redis: ArqRedis,
        *,
        served: str,
        slots: int,
        run_token: Callable[[str], Awaitable[None]],
        polled: Callable[[], None],
    ) -> None:
        async def run_shard(context: dict[Any, Any]) -> None:
            # arq counts tries in a key that lives for a day; nobody asks for it, and a killed worker would leave it.
            with suppress(RedisError, OSError):
                await redis.delete(retry_key_prefix + context["job_id"])
            await run_token(context["job_id"])

        super().__init__(
            # No timeout: a shard may take long. The mark on a running token lives as long as a lease, and
            # `Keeper.renew` prolongs it.
            [func(run_shard, name=_FUNCTION, max_tries=_ENDLESS_TRIES)],  # type: ignore[arg-type] # its protocol
            redis_pool=redis,
            queue_name=redis.default_queue_name,
            max_jobs=slots,
            job_timeout=None,  # type: ignore[arg-type] # arq takes None as "none", its annotation does not
            keep_result=0,
            poll_delay=POLL_SECONDS,
            queue_read_limit=1,  # `start_jobs` asks only whether there is one
            handle_signals=False,
            job_serializer=_serialize,
            job_deserializer=json.loads,
            log_results=False,
        )
        self._served = served
        self._polled = polled

    async def heart_beat(self) -> None:
        """Called after each look at the queue. arq would count the queue for its health record, which nobody reads."""
        self._polled()
        heed_cancel()

    async def start_jobs(self, job_ids: list[bytes]) -> None:
        """Run tokens, as many as there are slots."""
        if not job_ids:
            return
        free = self.max_jobs - self.job_counter
        prefixes = (in_progress_key_prefix, job_key_prefix)
        for found in await scripts.run(self.pool, "pick", self._served, *prefixes, LEASE_MS, free):
            token = found.decode(errors="replace")
            if token in self.tasks:
                continue  # its mark ran out while Redis was away
            await self.sem.acquire()
            self.job_counter += 1
            self.tasks[token] = task = self.loop.create_task(self.run_job(token, timestamp_ms()))
            task.add_done_callback(lambda _: self._release_sem_dec_counter_on_complete())

    async def run_job(self, job_id: str, score: int) -> None:
        """Run a token. One that arq cannot read or put away costs nothing: there are others."""
        try:
            await super().run_job(job_id, score)
        except (RedisError, OSError) as error:
            log.debug("token %s is left to run again: %s", job_id, error)
        except Exception as error:  # arq reads a token's payload, and anybody can write one
            log.error("token %r is unreadable: %r", job_id, error)
            await self.finish_failed_job(job_id, None)


class Tokens:
    """Runs arq's worker loop over the tokens of one model, and keeps the queue supplied."""

    def __init__(
        self,
        redis: ArqRedis,
        *,
        served: str,
        slots: int,
        run_token: Callable[[str], Awaitable[None]],
        metrics: Metrics,
        health: RedisHealth,
    ) -> None:
        self._redis = redis
        self._served = served
        self._slots = slots
        self._metrics = metrics
        self._health = health
        self._loop = _Loop(redis, served=served, slots=slots, run_token=run_token, polled=self._polled)
        self._backoff = Backoff(most=MOST_SECONDS)
        self._draining = False

    async def run(self) -> None:
        """Work off tokens until drained. arq's loop dies with its connection: then it goes on with what it has."""
        while not self._draining:
            try:
                with self._health.watch(_CALLER):
                    await self._loop.async_run()
            except asyncio.CancelledError:
                if not self._draining:
                    raise
            except (RedisError, OSError):
                await self._health.pause(self._backoff)

    def _polled(self) -> None:
        self._health.worked(_CALLER)
        self._backoff.reset()

    async def drain(self) -> None:
        """Take no more tokens; returns when those that run have ended."""
        self._draining = True
        self._loop.allow_pick_jobs = False
        if self._loop.tasks:
            await asyncio.wait(self._loop.tasks.values())
        if self._loop.main_task is not None:
            self._loop.main_task.cancel()

    async def top_up(self) -> None:
        """Add the tokens that the fleet is short of; to be called every `TOP_UP_SECONDS`."""
        shards, tokens, waiting = await scripts.run(self._redis, "demand", self._served, in_progress_key_prefix)
        self._metrics.queue_shards.set(shards)
        self._metrics.queue_tokens.set(tokens)
        if shards <= waiting:
            return
        slots = sum(card.slots for card in await fleet.living(self._redis) if card.model == self._served)
        short = min(shards, _TOKENS_A_SLOT * max(slots, self._slots)) - waiting
        now = timestamp_ms()
        payload = serialize_job(_FUNCTION, (), {}, None, now, serializer=_serialize)
        # As arq's `enqueue_job`, which watches out for ids that exist already: these are random.
        async with self._redis.pipeline(transaction=True) as pipe:
            for _ in range(short):
                token = uuid4().hex
                pipe.psetex(job_key_prefix + token, self._redis.expires_extra_ms, payload)
                pipe.zadd(self._redis.default_queue_name, {token: now})
            await pipe.execute()
