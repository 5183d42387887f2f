"""Rows as programs submit them, and threads that must end."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"custom_id": f"r{index}", "messages": [{"role": "user", "content": f"q{index}"}]}
        for index in range(start, start + count)
    ]


def failing(count: int) -> list[dict[str, Any]]:
    return [row | {"user": "fail"} for row in rows(count)]


async def asynchronous(given: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    for row in given:
        await asyncio.sleep(0)
        yield row


async def gone(thread: str) -> None:
    """Wait until no thread of this name is left."""
    async with asyncio.timeout(5):
        while any(each.name.startswith(thread) for each in threading.enumerate()):
            await asyncio.sleep(0.01)
