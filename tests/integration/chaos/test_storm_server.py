"""The storm's Redis fails as it is told to, and loses nothing by it."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from chaos.storm.server import Server
from redis.exceptions import OutOfMemoryError, ResponseError


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    # Not below the test's folder: the names of Unix sockets must be short.
    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        made = Server(Path(folder) / "redis", {})
        await made.start()
        await made.client.set("before", 1)
        yield made
        await made.kill()
        await made.client.aclose()


async def test_killed_or_stopped_it_keeps_what_it_had(server: Server) -> None:
    for end in (server.kill, server.stop):
        await end()
        await server.start()
        assert await server.client.get("before") == "1"


async def _write_for_ever(server: Server) -> None:
    while True:
        await server.client.set("during", 1)


async def test_a_full_disk(server: Server) -> None:
    async with server.disk_full():
        with pytest.raises(ResponseError, match="MISCONF"):
            await _write_for_ever(server)
    await server.client.set("after", 1)
    await server.kill()
    await server.start()
    assert await server.client.get("after") == "1"


async def test_no_memory(server: Server) -> None:
    await server.client.set("large", "x" * 2**20)
    async with server.out_of_memory():
        with pytest.raises(OutOfMemoryError):
            await server.client.set("during", 1)
    await server.client.set("after", 1)
