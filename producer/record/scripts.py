"""Runs the Lua scripts: by digest, many in one round trip, loaded again when Redis has forgotten them."""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from redis.asyncio import Redis
from redis.client import NEVER_DECODE
from redis.exceptions import NoScriptError

from producer.record.keys import lua

Call = tuple[str, Sequence[str | int | bytes]]
"""A script's name and its ARGV."""


@cache
def _source(name: str) -> tuple[str, str]:
    text = lua("schema") + "\n" + lua(name)
    return text, hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - the digest EVALSHA asks for


async def run(redis: Redis, name: str, *argv: str | int, raw: bool = False) -> Any:
    """Run one script; returns what it returns, its texts as bytes if `raw`."""
    return (await run_many(redis, [(name, argv)], raw=raw))[0]


async def run_many(redis: Redis, calls: Sequence[Call], *, raw: bool = False) -> list[Any]:
    """Run scripts in order, each atomic by itself, all in one round trip.

    Raises:
        redis.exceptions.RedisError: any of them failed; the others may have run.
    """
    try:
        return await _evalsha(redis, calls, raw)
    except NoScriptError:
        for name in {name for name, _ in calls}:
            await redis.script_load(_source(name)[0])
        return await _evalsha(redis, calls, raw)


async def _evalsha(redis: Redis, calls: Sequence[Call], raw: bool) -> list[Any]:
    options = {NEVER_DECODE: True} if raw else {}
    async with redis.pipeline(transaction=False) as pipe:
        for name, argv in calls:
            pipe.execute_command("EVALSHA", _source(name)[1], 0, *argv, **options)
        # redis-py would put the whole command, rows and all, into the message of an error.
        answers = list(await pipe.execute(raise_on_error=False))
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers
