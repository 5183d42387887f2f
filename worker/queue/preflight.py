"""Is this Redis fit to keep a dataset? Asked once, before anything is claimed."""

import logging

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from producer.record import fleet
from producer.record.connection import reach

log = logging.getLogger(__name__)

#: The oldest server that the scripts are tested on.
OLDEST = (6, 2)


class UnfitRedis(Exception):  # noqa: N818 - a state of the world
    """This Redis would lose rows; the message is one line for the user."""


async def check(redis: Redis) -> None:
    """Refuse a server that cannot keep a dataset, warn about one that forgets everything on restart.

    Raises:
        UnfitRedis: work must not begin.
    """
    await reach(redis)
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
    try:
        await fleet.living(redis)
        await redis.dbsize()  # arq's worker asks for it
    except NoPermissionError as error:
        raise UnfitRedis(f"this Redis user may not do what a worker does: {error}") from None
    if not int(info.get("aof_enabled", 1)):
        log.warning("Redis keeps no append-only file: a restart of it loses every job (set appendonly yes)")
