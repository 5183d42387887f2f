"""Is this Redis fit to keep a dataset? Asked once, before anything is claimed."""

import logging
import time

from arq.constants import job_key_prefix
from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError, ResponseError

from producer.record import fleet
from producer.record.connection import reach, told
from producer.record.trouble import Trouble, trouble
from worker.backoff import Backoff
from worker.queue.health import MOST_SECONDS

log = logging.getLogger(__name__)

#: The oldest server that the scripts are tested on.
OLDEST = (6, 2)

#: How long a server may take to load its data after a start.
LOAD_SECONDS = 300.0


class UnfitRedis(Exception):  # noqa: N818 - a state of the world
    """This Redis would lose rows; the message is one line for the user."""


async def check(redis: Redis) -> None:
    """Refuse a server that cannot keep a dataset, warn about one that forgets everything on restart.

    Raises:
        UnfitRedis: work must not begin.
    """
    await _loaded(redis)
    info = await redis.info()
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    if version < OLDEST:
        raise UnfitRedis(f"Redis {info['redis_version']} is too old: {'.'.join(map(str, OLDEST))} or newer is needed")
    if info.get("role") == "slave":
        raise UnfitRedis("this Redis is a replica, which takes no writes: name its primary")
    if int(info.get("cluster_enabled", 0)):
        raise UnfitRedis("this Redis is a cluster node: Redis Cluster is not supported, name a single server")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnfitRedis(
            f"Redis may evict keys (maxmemory-policy {policy}), which silently loses rows: set it to noeviction"
        )
    await _allowed(redis)
    if not int(info.get("aof_enabled", 1)):
        log.warning("Redis keeps no append-only file: a restart of it loses every job (set appendonly yes)")
    elif info.get("aof_last_write_status", "ok") != "ok":
        log.warning("Redis could not write its append-only file: see to its disk; until then it takes no rows")


async def _allowed(redis: Redis) -> None:
    """Try what a worker does: read and write the record's keys and arq's, and run scripts."""
    try:
        await fleet.living(redis)
        await redis.dbsize()  # arq's worker asks for it
        await fleet.retire(redis, "nobody")
        await redis.delete(job_key_prefix + "nobody")
    except ResponseError as error:
        kind = trouble(error)
        if kind is Trouble.REFUSED:
            raise UnfitRedis(f"this Redis user may not do what a worker does: {told(error)}") from None
        if kind not in (Trouble.DISK, Trouble.FULL):  # which the worker waits out
            raise


async def _loaded(redis: Redis) -> None:
    """Returns when the server answers; one that still loads its data is waited for."""
    backoff = Backoff(most=MOST_SECONDS)
    deadline = time.monotonic() + LOAD_SECONDS
    said = False
    while True:
        try:
            await reach(redis)
            return
        except BusyLoadingError as error:
            if time.monotonic() > deadline:
                raise
            if not said:
                log.info("waiting: %s", error)
            said = True
        await backoff.wait()
