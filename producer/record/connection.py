"""Connections to Redis, and what is said to a user when there is none."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis import exceptions
from redis.asyncio import Redis

#: For every client of ours: no command blocks in Redis, so one that takes this long is lost (seconds).
TIMEOUTS: dict[str, Any] = {"socket_connect_timeout": 5.0, "socket_timeout": 30.0}


#: How long a server may take to answer the first word (seconds).
REACH_SECONDS = 5.0

#: Where in a script the server met an error: of no use to a user.
_SCRIPT_PLACE = re.compile(
    r" ?script: \w+, on @user_script:\d+\.?|ERR Error running script \([^)]*\): @user_script:\d+: ?"
)


class RedisUnavailable(Exception):  # noqa: N818 - a state of the world, not a fault of the call
    """Redis cannot be reached or refuses to serve; the message is one line for the user."""


def connect(url: str) -> Redis:
    """A client for `url` (`redis://`, `rediss://` or `unix://`); text in, text out. Connects on first use.

    Raises:
        RedisUnavailable: the URL is not one of Redis.
    """
    try:
        client: Redis = Redis.from_url(url, decode_responses=True, **TIMEOUTS)
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # what the URL asks for is judged only here
    except (ValueError, TypeError) as error:
        reason = "" if "@" in url else f": {error}"  # which may quote a piece of the password
        raise RedisUnavailable(f"{shown(url)} is not a Redis URL{reason}") from None
    return client


async def reach(redis: Redis) -> None:
    """See that the server answers, without the patience that a busy one gets later.

    Raises:
        redis.exceptions.RedisError: it does not.
    """
    try:
        async with asyncio.timeout(REACH_SECONDS):
            await redis.ping()
    except TimeoutError:
        raise exceptions.TimeoutError(f"no answer in {REACH_SECONDS:g} s") from None


def heed_cancel() -> None:
    """Raise the cancellation that this task was asked for and that got lost on its way.

    redis-py looks for stray data under a timeout of 0, which takes a cancellation that arrives just then for its
    own end. For loops that would otherwise go on for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@asynccontextmanager
async def plain_errors(url: str) -> AsyncIterator[None]:
    """Turns whatever redis-py raises inside into one `RedisUnavailable` that says which server and why."""
    try:
        yield
    except exceptions.RedisError as error:
        match error:
            case exceptions.AuthenticationError():
                what = "refuses the password"
            case exceptions.OutOfMemoryError():
                what = "is full"
            case exceptions.ConnectionError() | exceptions.TimeoutError():
                what = "cannot be reached"
            case _:
                what = "refuses"
        raise RedisUnavailable(f"Redis at {shown(url)} {what}: {_SCRIPT_PLACE.sub('', str(error))}") from None


def shown(url: str) -> str:
    """The URL without password and parameters, fit for a message."""
    scheme, separator, rest = url.partition("://")
    place, _, parameters = rest.partition("?")
    if "@" in parameters:  # a password with a question mark, or a parameter with an at sign: nobody can tell
        place = "..."
    return scheme + separator + place.rpartition("@")[2]
