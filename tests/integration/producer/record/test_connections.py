"""Connections to real servers that change places or turn us away."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.exceptions import RedisError
from redis_servers import Server, failover, needs_redis_server, server, wait_for

from producer.errors import RedisUnavailable
from producer.record import scripts
from producer.record.connection import connect, plain_errors
from producer.record.trouble import Trouble, trouble


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    with server(tmp_path / "one") as one, server(tmp_path / "two") as two:
        yield one, two


@needs_redis_server
async def test_a_server_that_becomes_a_replica_is_left(two: tuple[Server, Server]) -> None:
    one, other = two
    async with connect(one.url) as redis:
        await redis.set("key", "value")
        one.client().replicaof("127.0.0.1", other.port)
        for write in (redis.set("key", "other"), scripts.run(redis, "announce", "worker", "{}", 1000)):
            with pytest.raises(RedisError) as error:
                await write
            assert trouble(error.value) is Trouble.READ_ONLY
            # Closed by us: the next command connects anew, to whatever the name means by then.
            assert not [each for each in redis.connection_pool._available_connections if each.is_connected]
        with pytest.raises(RedisUnavailable, match="takes no writes"):
            async with plain_errors(one.url):
                await redis.set("key", "other")


@needs_redis_server
async def test_the_primary_is_whom_the_sentinels_name(tmp_path: Path) -> None:
    with failover(tmp_path) as servers:
        async with connect(servers.url) as redis:
            await redis.set("key", "value")
            assert servers.primary.client().get("key") == "value"
            wait_for(lambda: servers.replica.client().get("key") == "value")
            wait_for(lambda: servers.sentinel.client().execute_command("SENTINEL", "FAILOVER", "main"))
            wait_for(lambda: servers.sentinel.primary() == servers.replica.port)
            wait_for(lambda: servers.primary.client().role()[0] == "slave")
            for _ in range(5):
                try:
                    await redis.set("key", "newer")
                    break
                except RedisError:
                    continue
            assert servers.replica.client().get("key") == "newer"
        with pytest.raises(RedisUnavailable, match="cannot be reached"):
            async with connect(servers.url.replace("/main", "/other")) as redis, plain_errors(servers.url):
                await redis.ping()
    with pytest.raises(RedisUnavailable, match="cannot be reached"):
        async with connect(servers.url) as redis, plain_errors(servers.url):
            await redis.ping()
