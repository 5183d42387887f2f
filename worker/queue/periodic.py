"""Background duties: done again and again, on through every trouble with Redis."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from redis.exceptions import RedisError

from producer.record.connection import heed_cancel

log = logging.getLogger(__name__)


async def every(seconds: float, duty: str, action: Callable[[], Awaitable[None]]) -> None:
    """Run `action` about every `seconds` (jittered by a quarter, so that a fleet spreads out) until cancelled.

    When Redis fails it, that is said once and again when it works; any other error is a bug and is raised.
    """
    failing = False
    while True:
        try:
            await action()
            if failing:
                log.info("%s: works again", duty)
            failing = False
        except (RedisError, OSError) as error:
            if not failing:
                log.warning("%s: waits for Redis: %s", duty, error)
            failing = True
        heed_cancel()
        await asyncio.sleep(seconds * random.uniform(0.75, 1.25))  # noqa: S311 - jitter, not a secret
