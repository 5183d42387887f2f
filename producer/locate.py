"""Which Redis a user means: the one that is named, or the embedded server if it runs."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from producer.errors import RedisUnavailable
from producer.record.connection import connect, plain_errors, reach
from producer.server.embedded import EmbeddedRedis
from producer.server.errors import ServerError

URL_VARIABLE = "MINEDRAFT_REDIS_URL"


def url_of(named: str | None) -> str:
    """The URL that is meant: `named`, or that in `MINEDRAFT_REDIS_URL`, or this user's embedded server's.

    Raises:
        RedisUnavailable: none is named, and the embedded server does not run.
    """
    if named is None:
        named = os.environ.get(URL_VARIABLE) or None
    if named is not None:
        return named
    try:
        embedded = EmbeddedRedis()
        if embedded.status().running:
            return embedded.url
    except ServerError as error:
        raise RedisUnavailable(str(error)) from None
    raise RedisUnavailable(
        "Redis is not running: start your own with `producer redis start` (`worker run` does it too), "
        "or name one with --redis URL"
    )


@asynccontextmanager
async def redis_at(named: str | None) -> AsyncIterator[Redis]:
    """A client for the Redis that is meant, which answers; what Redis says inside is said plainly.

    Raises:
        RedisUnavailable: it does not answer, or refuses.
    """
    url = url_of(named)
    async with connect(url) as redis, plain_errors(url):
        await reach(redis)
        yield redis
