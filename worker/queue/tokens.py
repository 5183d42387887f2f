"""arq's part: tokens that say "there is work", handed out by arq's worker loop, topped up from the record.

Whoever runs a token claims shards until the record has none left, so the pace of tokens bounds nothing.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix
from arq.worker import Worker, func
from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError

from producer.record import fleet, scripts
from producer.record.connection import TIMEOUTS
from producer.record.keys import key
from worker.backoff import Backoff
from worker.metrics import Metrics

log = logging.getLogger(__name__)

#: How often tokens are topped up: the longest that a new job waits for an idle fleet.
TOP_UP_SECONDS = 0.5

#: How often arq looks for tokens while slots are free.
POLL_SECONDS = 0.1

#: Tokens kept waiting for each slot of the fleet. A token too many is an empty claim, one too few an idle slot.
_TOKENS_A_SLOT = 2

_FUNCTION = "run_shard"

#: arq counts pickups, the record counts attempts: arq must never give a token up.
_ENDLESS_TRIES = 2**31


def connect(url: str, served: str) -> ArqRedis:
    """arq's client for the queue of the model `served`. JSON on the wire: arq's default, pickle, runs code."""
    return ArqRedis(
        ConnectionPool.from_url(url, **TIMEOUTS),
        job_serializer=_serialize,
        job_deserializer=json.loads,
        default_queue_name=key("tokens", served),
    )


def _serialize(token: dict[str, Any]) -> bytes:
    return json.dumps(token).encode()


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
    ) -> None:
        self._redis = redis
        self._served = served
        self._slots = slots
        self._run_token = run_token
        self._metrics = metrics
        self._worker: Worker | None = None
        self._draining = False

    async def run(self) -> None:
        """Work off tokens until drained. arq's loop dies with its connection: then it is started again."""
        backoff = Backoff()
        while not self._draining:
            self._worker = self._new_worker()
            try:
                await self._worker.async_run()
            except asyncio.CancelledError:
                if not self._draining:
                    raise
            except (RedisError, OSError) as error:
                log.warning("the queue waits for Redis: %s", error)
                await backoff.wait()
            finally:
                await _ended(self._worker)

    async def drain(self) -> None:
        """Take no more tokens; returns when those that run have ended."""
        self._draining = True
        if self._worker is not None:
            self._worker.allow_pick_jobs = False
            await _ended(self._worker)
            if self._worker.main_task is not None:
                self._worker.main_task.cancel()

    async def top_up(self) -> None:
        """Add the tokens that the fleet is short of; to be called every `TOP_UP_SECONDS`."""
        shards, tokens, waiting = await scripts.run(self._redis, "demand", self._served, in_progress_key_prefix)
        self._metrics.queue_shards.set(shards)
        self._metrics.queue_tokens.set(tokens)
        slots = sum(card.slots for card in await fleet.living(self._redis) if card.model == self._served)
        for _ in range(min(shards, _TOKENS_A_SLOT * max(slots, self._slots)) - waiting):
            await self._redis.enqueue_job(_FUNCTION)

    def _new_worker(self) -> Worker:
        async def run_shard(context: dict[Any, Any]) -> None:
            await self._run_token(context["job_id"])

        return Worker(
            # No timeout: a shard may take long. arq's mark on a running token then lives 10 s, and
            # `Keeper.renew` prolongs it.
            [func(run_shard, name=_FUNCTION, max_tries=_ENDLESS_TRIES)],  # type: ignore[arg-type] # its protocol
            redis_pool=self._redis,
            queue_name=self._redis.default_queue_name,
            max_jobs=self._slots,
            job_timeout=None,  # type: ignore[arg-type] # arq takes None as "none", its annotation does not
            keep_result=0,
            poll_delay=POLL_SECONDS,
            handle_signals=False,
            job_serializer=_serialize,
            job_deserializer=json.loads,
            log_results=False,
        )


async def _ended(worker: Worker) -> None:
    """Wait for the tokens that arq's worker runs; an error of arq's own bookkeeping costs nothing."""
    if worker.tasks:
        for outcome in await asyncio.gather(*worker.tasks.values(), return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, RedisError | OSError):
                log.error("a token failed", exc_info=outcome)
