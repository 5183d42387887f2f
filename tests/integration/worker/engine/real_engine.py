"""Rows for a real engine, its processes, and how free it leaves the event loop."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil

from producer.record.models import CHAT_URL, COMPLETIONS_URL, Row


def chat(content: str = "Hello", **body: Any) -> Row:
    return Row(0, 1, "row-1", CHAT_URL, {"messages": [{"role": "user", "content": content}], **body})


def completion(prompt: Any = "Hello", **body: Any) -> Row:
    return Row(0, 1, "row-1", COMPLETIONS_URL, {"prompt": prompt, **body})


class Gap:
    """The longest time, in seconds, that the event loop was held up."""

    worst = 0.0


@asynccontextmanager
async def watched_loop() -> AsyncIterator[Gap]:
    """Measure how free the loop stays."""
    gap = Gap()

    async def tick() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            gap.worst, last = max(gap.worst, now - last), now

    ticker = asyncio.create_task(tick())
    try:
        yield gap
    finally:
        ticker.cancel()


def engine_processes() -> list[psutil.Process]:
    """vLLM's processes below this one, the engine core first."""
    return [child for child in psutil.Process().children(recursive=True) if _command(child).startswith("VLLM::")]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
