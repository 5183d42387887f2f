"""Connections to Redis, and what is said to a user when there is none."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis import exceptions
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.sentinel import MasterNotFoundError

from producer.errors import NoRedisUrl, RedisUnavailable
from producer.record.failover import SentinelPool, leave_replicas
from producer.record.trouble import Trouble, trouble


@dataclass(frozen=True, slots=True)
class Patience:
    """How long Redis may take, in seconds, before a connection is given up.

    Attributes:
        connect: until a connection stands.
        answer: until a command is sent, and again until it is answered. No command of ours blocks in Redis.
    """

    connect: float = 5.0
    answer: float = 30.0

    @property
    def options(self) -> dict[str, Any]:
        """The same in redis-py's words."""
        return {"socket_connect_timeout": self.connect, "socket_timeout": self.answer}


#: For people and their commands: better slow than broken off.
PATIENT = Patience()

#: How long a server may take to answer the first word (seconds).
REACH_SECONDS = 5.0

#: Where in a script the server met an error: of no use to a user.
_SCRIPT_PLACE = re.compile(
    r" ?script: \w+, on @user_script:\d+\.?|ERR Error running script \([^)]*\): @user_script:\d+: ?"
)

_SAID = {
    Trouble.UNREACHABLE: "cannot be reached",
    Trouble.TIMEOUT: "cannot be reached",
    Trouble.FULL: "is full",
    Trouble.READ_ONLY: "takes no writes",
    Trouble.DISK: "cannot write to its disk",
    Trouble.REFUSED: "refuses this user",
    Trouble.OTHER: "refuses",
}


def connect(url: str, patience: Patience = PATIENT) -> Redis:
    """A client for `url`; text in, text out. Connects on first use.

    Args:
        url: `redis://`, `rediss://` (TLS) or `unix://` as redis-py reads them, with its parameters
            (`?ssl_ca_certs=FILE`, `?db=1`), but TLS also checks the server's name; or `sentinel://`, as
            `failover.SentinelPool` reads it.
        patience: when a silent server is given up.

    Raises:
        NoRedisUrl: the URL is not one of Redis.
    """
    # What is no text in Redis (somebody else's doing) must not be an error of every command that meets it.
    text = {"decode_responses": True, "encoding_errors": "surrogateescape"}
    client: Redis = Redis.from_pool(pool_for(url, patience, **text))
    return client


def pool_for(url: str, patience: Patience, **options: Any) -> ConnectionPool:
    """The connections of a client for `url`; `options` are redis-py's, for each connection.

    Raises:
        NoRedisUrl: the URL is not one of Redis.
    """
    scheme = url.partition("://")[0]
    if scheme in ("rediss", "sentinels"):
        options["ssl_check_hostname"] = True  # redis-py would take any server's certificate of the same authority
    try:
        if scheme in ("sentinel", "sentinels"):
            pool: ConnectionPool = SentinelPool.from_url(url, **patience.options, **options)
        else:
            pool = ConnectionPool.from_url(url, **patience.options, **options)
        leave_replicas(pool)
        pool.connection_class(**pool.connection_kwargs)  # what the URL asks for is judged only here
    except (ValueError, TypeError) as error:
        reason = "" if "@" in url else f": {error}"  # which may quote a piece of the password
        raise NoRedisUrl(f"{shown(url)!r} is not a Redis URL{reason}") from None
    return pool


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
        what = "refuses the password" if isinstance(error, exceptions.AuthenticationError) else _SAID[trouble(error)]
        raise RedisUnavailable(f"Redis at {shown(url)} {what}: {told(error)}") from None


def told(error: Exception) -> str:
    """What the server said, without the place in our script where it said it."""
    if isinstance(error, MasterNotFoundError):  # redis-py goes on with the objects that it asked
        return str(error).partition(" : ")[0]
    return _SCRIPT_PLACE.sub("", str(error)) or type(error).__name__


def shown(url: str) -> str:
    """The URL without password and parameters, fit for a message."""
    scheme, separator, rest = url.partition("://")
    place, _, parameters = rest.partition("?")
    if "@" in parameters:  # a password with a question mark, or a parameter with an at sign: nobody can tell
        place = "..."
    return scheme + separator + place.rpartition("@")[2]
