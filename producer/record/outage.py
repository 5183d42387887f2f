"""Outlasting an absent Redis: ask until it answers, and say once that one waits."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from redis.exceptions import RedisError

from producer.record.connection import heed_cancel, told
from producer.record.trouble import Trouble, trouble

#: Redis is not there, or about to be somewhere else: the same question will be answered.
AWAY = frozenset({Trouble.UNREACHABLE, Trouble.TIMEOUT, Trouble.READ_ONLY})

#: Also what somebody must do something about, for whoever has time.
ANY_WEATHER = frozenset(Trouble) - {Trouble.OTHER, Trouble.REFUSED}

#: The first and the longest pause between two tries.
_SOON_SECONDS = 0.25
_LONG_SECONDS = 5.0

T = TypeVar("T")


async def outlast(
    ask: Callable[[], Awaitable[T]],
    *,
    say: Callable[[str], Any],
    weather: Collection[Trouble] = AWAY,
    seconds: float = math.inf,
) -> T:
    """What Redis answers, asked again while there is `weather`; what is asked must bear being asked twice.

    Raises:
        redis.exceptions.RedisError: one that no waiting helps against, or the last one when `seconds` were not enough.
    """
    pause, until = _SOON_SECONDS, time.monotonic() + seconds
    said = False
    while True:
        try:
            return await ask()
        except RedisError as error:
            if trouble(error) not in weather or time.monotonic() >= until:
                raise
            if not said:
                what = "Redis is away, waiting for it" if trouble(error) in AWAY else "Redis cannot, waiting for it"
                say(f"{what}: {told(error)}")
            said = True
        heed_cancel()
        await asyncio.sleep(min(pause, max(until - time.monotonic(), 0)))
        pause = min(2 * pause, _LONG_SECONDS)
