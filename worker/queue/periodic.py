"""Background duties: done again and again, on through every trouble with Redis."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from redis.exceptions import RedisError

from producer.record.connection import heed_cancel
from worker.backoff import Backoff
from worker.queue.health import MOST_SECONDS, RedisHealth


async def every(seconds: float, duty: str, action: Callable[[], Awaitable[None]], health: RedisHealth) -> None:
    """Run `action` about every `seconds` (jittered by a quarter, so that a fleet spreads out) until cancelled.

    When Redis fails it, `health` is told, and it is tried again soon; any other error is a bug and is raised.
    """
    backoff = Backoff(most=min(MOST_SECONDS, seconds))
    while True:
        try:
            with health.watch(duty):
                await action()
        except (RedisError, OSError):
            heed_cancel()
            await health.pause(backoff)
            continue
        heed_cancel()
        backoff.reset()
        await asyncio.sleep(seconds * random.uniform(0.75, 1.25))  # noqa: S311 - jitter, not a secret
