"""Connections to Redis, and what is said to a user when there is none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis import exceptions
from redis.asyncio import Redis

#: For every client of ours: no command blocks in Redis, so one that takes this long is lost (seconds).
TIMEOUTS: dict[str, Any] = {"socket_connect_timeout": 5.0, "socket_timeout": 30.0}


class RedisUnavailable(Exception):  # noqa: N818 - a state of the world, not a fault of the call
    """Redis cannot be reached or refuses to serve; the message is one line for the user."""


def connect(url: str) -> Redis:
    """A client for `url` (`redis://`, `rediss://` or `unix://`); text in, text out. Connects on first use.

    Raises:
        RedisUnavailable: the URL is not one of Redis.
    """
    try:
        client: Redis = Redis.from_url(url, decode_responses=True, **TIMEOUTS)
        return client
    except ValueError as error:
        raise RedisUnavailable(f"{url!r} is not a Redis URL: {error}") from None


@asynccontextmanager
async def plain_errors(url: str) -> AsyncIterator[None]:
    """Turns whatever redis-py raises inside into one `RedisUnavailable` that says which server and why."""
    try:
        yield
    except exceptions.AuthenticationError as error:
        raise RedisUnavailable(f"Redis at {shown(url)} refuses the password: {error}") from None
    except exceptions.OutOfMemoryError as error:
        raise RedisUnavailable(f"Redis at {shown(url)} is full: {error}") from None
    except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
        raise RedisUnavailable(f"Redis at {shown(url)} cannot be reached: {error}") from None
    except exceptions.RedisError as error:
        raise RedisUnavailable(f"Redis at {shown(url)} answers: {error}") from None


def shown(url: str) -> str:
    """The URL without its password, fit for a message."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]
