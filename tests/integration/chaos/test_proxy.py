"""The bad network is as bad as asked for, and well again afterwards."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from chaos.storm.proxy import Proxy
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as Unreached
from redis.exceptions import TimeoutError as Late


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[Proxy]:
    made = Proxy(Path(redis_url.removeprefix("unix://")))
    await made.listen()
    yield made
    made.close()


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Redis]:
    async with Redis.from_url(proxy.url, socket_timeout=0.5) as made:
        await made.ping()
        yield made


async def test_slow(proxy: Proxy, client: Redis) -> None:
    async with proxy.slow(0.1):
        began = time.monotonic()
        await client.ping()
        assert time.monotonic() - began > 0.19
    began = time.monotonic()
    await client.ping()
    assert time.monotonic() - began < 0.1


async def test_reset(proxy: Proxy, client: Redis) -> None:
    pinging = asyncio.create_task(client.blpop(["nothing"], timeout=0))
    await asyncio.sleep(0.05)
    async with proxy.cut("reset"):
        with pytest.raises(Unreached):
            await pinging
        assert await client.ping()


async def test_refused(proxy: Proxy, client: Redis) -> None:
    async with proxy.cut("refused"):
        with pytest.raises(Unreached):
            await client.ping()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    assert await client.ping()


async def test_black_hole(proxy: Proxy, client: Redis, redis_url: str) -> None:
    async with proxy.cut("black hole"):
        with pytest.raises(Late):
            await client.set("late", 1)
    async with Redis.from_url(redis_url) as direct:
        while not await direct.exists("late"):  # what was sent arrives all the same
            await asyncio.sleep(0.01)
    assert await client.ping()


async def test_redis_away(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path / "nobody")
    await proxy.listen()
    async with Redis.from_url(proxy.url) as client:
        with pytest.raises(Unreached):
            await client.ping()
    proxy.close()
