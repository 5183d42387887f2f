"""Is this Redis fit to keep a dataset? Asked once, before anything is claimed."""

import logging

from redis.asyncio import Redis

log = logging.getLogger(__name__)

#: The oldest server that the scripts are tested on.
OLDEST = (6, 2)


class UnfitRedis(Exception):  # noqa: N818 - a state of the world
    """This Redis would lose rows; the message is one line for the user."""


async def check(redis: Redis) -> None:
    """Refuse a server that is too old or may evict keys, warn about one that forgets everything on restart.

    Raises:
        UnfitRedis: work must not begin.
    """
    info = await redis.info()
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    if version < OLDEST:
        raise UnfitRedis(f"Redis {info['redis_version']} is too old: {'.'.join(map(str, OLDEST))} or newer is needed")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnfitRedis(
            f"Redis may evict keys (maxmemory-policy {policy}), which silently loses rows: set it to noeviction"
        )
    if not int(info.get("aof_enabled", 1)):
        log.warning("Redis keeps no append-only file: a restart of it loses every job (set appendonly yes)")
