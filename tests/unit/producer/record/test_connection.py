"""Connections, and what is said of them."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from redis.asyncio.sentinel import MasterNotFoundError

from producer.errors import RedisUnavailable
from producer.record.connection import Patience, connect, heed_cancel, shown, told
from producer.record.failover import SentinelPool


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://host:1/0", "redis://host:1/0"),
        ("redis://user:sekret@host:1", "redis://host:1"),
        ("redis://:se@kret@host:1", "redis://host:1"),
        ("redis://host?password=sekret", "redis://host"),
        ("redis://host?password=sek@ret", "redis://..."),
        ("redis://:sek?ret@host", "redis://..."),
        ("unix:///a/b.sock?db=1", "unix:///a/b.sock"),
        ("sentinel://user:sekret@a:1,b:2/main?sentinel_password=sekret", "sentinel://a:1,b:2/main"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, words: str) -> None:
    assert shown(url) == words


@pytest.mark.parametrize(
    "url",
    [
        "redi://:sekret@host",
        "redis://:sekret?x@host",
        "redis://host?foo=sekret",
        "sentinel://:sekret@host",
        "sentinel://:sekret@/main",
        "sentinel://:sekret@host:port/main",
        "sentinel://host/main?sentinel_foo=sekret",
        "sentinel://host/main?foo=sekret",
    ],
)
def test_a_bad_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(RedisUnavailable) as error:
        connect(url)
    assert "sekret" not in str(error.value)


async def test_a_cancellation_that_was_swallowed_is_heeded() -> None:
    heed_cancel()

    async def swallow() -> str:
        with suppress(asyncio.CancelledError):  # as redis-py's zero timeouts do
            await asyncio.sleep(60)
        heed_cancel()
        return "went on"

    task = asyncio.create_task(swallow())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def options(url: str) -> dict[str, Any]:
    """What a connection for `url` is made with."""
    return dict(connect(url).connection_pool.connection_kwargs)


def test_a_sentinel_url_names_sentinels_and_primary() -> None:
    pool = connect("sentinel://us%40er:pa%2Fss@a:1,[::1]:2,c/main?db=3&sentinel_password=x").connection_pool
    assert isinstance(pool, SentinelPool)
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(each["host"], each["port"]) for each in asked] == [("a", 1), ("::1", 2), ("c", 26379)]
    assert {each["password"] for each in asked} == {"x"}
    assert pool.service_name == "main"
    kept = pool.connection_kwargs
    assert (kept["username"], kept["password"], kept["db"]) == ("us@er", "pa/ss", 3)


def test_tls_checks_the_server_s_name_unless_told_otherwise() -> None:
    assert options("rediss://host")["ssl_check_hostname"] is True
    assert options("rediss://host?ssl_check_hostname=false")["ssl_check_hostname"] is False
    assert "ssl_check_hostname" not in options("redis://host")
    pool = connect("sentinels://host/main?ssl_ca_certs=/ca.pem").connection_pool
    for each in (pool.connection_kwargs, pool.sentinel_manager.sentinels[0].connection_pool.connection_kwargs):
        assert (each["ssl_ca_certs"], each["ssl_check_hostname"]) == ("/ca.pem", True)


def test_patience_is_the_caller_s_unless_the_url_has_its_own() -> None:
    client = connect("redis://host?socket_timeout=7", Patience(connect=1, answer=2))
    kept = client.connection_pool.connection_kwargs
    assert (kept["socket_connect_timeout"], kept["socket_timeout"]) == (1, 7)


def test_what_redis_py_says_of_sentinels_is_cut_to_a_sentence() -> None:
    error = MasterNotFoundError("No master found for 'x' : <redis.asyncio.client.Redis(...)> - ConnectionError(...)")
    assert told(error) == "No master found for 'x'"
