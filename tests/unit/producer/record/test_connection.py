"""Connections, and what is said of them."""

import asyncio
from contextlib import suppress

import pytest

from producer.record.connection import RedisUnavailable, connect, heed_cancel, shown


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
    ],
)
def test_a_url_is_shown_without_its_password(url: str, words: str) -> None:
    assert shown(url) == words


@pytest.mark.parametrize("url", ["redi://:sekret@host", "redis://:sekret?x@host", "redis://host?foo=sekret"])
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
