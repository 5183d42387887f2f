"""A worker's queue without its process."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from queue_bench import Bench, ScriptedEngine, at_once, bench

from producer.record.connection import connect


@pytest.fixture
async def worker(redis_url: str) -> AsyncIterator[Bench]:
    async with connect(redis_url) as redis:
        made = bench(redis, redis_url, ScriptedEngine(at_once))
        writing = asyncio.create_task(made.buffer.run())
        yield made
        writing.cancel()
