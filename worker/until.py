"""Doing something until it is done, or until it must stop."""

import asyncio
from collections.abc import Coroutine


async def until(work: Coroutine[None, None, None], *events: asyncio.Event) -> bool:
    """Do `work` until it is done (True) or an event is set (False, and it is cancelled). Its errors are raised.

    It is not begun when an event is set already.
    """
    if any(event.is_set() for event in events):
        work.close()
        return False
    task = asyncio.create_task(work)
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait([task, *waits], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (task, *waits):
            each.cancel()
        await asyncio.wait([task, *waits])
    if task.cancelled():
        return False
    task.result()
    return True
