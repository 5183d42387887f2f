"""Clients of a real Redis."""

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from producer import Client, SyncClient
from producer.record.connection import connect


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with connect(redis_url) as client:
        yield client


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Client]:
    async with Client(redis_url) as opened:
        yield opened


@pytest.fixture
def sync(redis_url: str) -> Iterator[SyncClient]:
    with SyncClient(redis_url) as opened:
        yield opened
