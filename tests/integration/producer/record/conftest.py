"""The record's tests run on the oldest server that is supported, and on the system's."""

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis
from redis_fixture import every_binary, running_redis

from producer.record.connection import connect


@pytest.fixture(scope="module", params=every_binary())
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis"), binary=request.param) as running:
        yield running.url


@pytest.fixture
async def redis(server: str) -> AsyncIterator[Redis]:
    async with connect(server) as client:
        await client.flushall()
        yield client
