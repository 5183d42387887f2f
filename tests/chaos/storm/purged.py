"""Purge takes one job and nothing else: what is in Redis before and after. Knows nothing of the programs."""

from typing import Any

from chaos.storm.audit import Audit
from redis import Redis

#: Where all jobs are entries.
_LISTS = {"minedraft:jobs", "minedraft:identities", "minedraft:expiring"}


def snapshot(redis: "Redis", job: str) -> dict[str, Any]:
    """Every key and what is in it, but what is of one job. The client decodes responses."""
    kept = {key: _content(redis, key) for key in redis.scan_iter(count=1000) if job not in key.split(":")}
    for key in _LISTS & kept.keys():
        kept[key] = {name: value for name, value in kept[key].items() if job not in (name, value)}
    return {key: content for key, content in kept.items() if content}


def audit_purge(made: Audit, redis: "Redis", job: str, before: dict[str, Any]) -> None:
    """Find what is left of a purged job, and what went or changed with it."""
    for key in sorted(redis.scan_iter(count=1000)):
        if job in key.split(":") or (key in _LISTS and any(job in entry for entry in _content(redis, key).items())):
            made.find("keys", f"{key} has something of the purged job {job}")
    after = snapshot(redis, job)
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            made.find("keys", f"{key} was touched by the purge of job {job}")


def _content(redis: "Redis", key: str) -> Any:
    match redis.type(key):
        case "hash":
            return redis.hgetall(key)
        case "list":
            return redis.lrange(key, 0, -1)
        case "zset":
            return dict(redis.zrange(key, 0, -1, withscores=True))  # type: ignore[arg-type]
        case "set":
            return redis.smembers(key)
        case _:
            return redis.get(key)
