"""Doing something until it is done, or until it must stop."""

import asyncio
from collections.abc import Coroutine


def heed_cancel() -> None:
    """Raise the cancellation that this task was asked for and that got lost on its way.

    redis-py looks for stray data under a timeout of 0, which takes a cancellation that arrives just then for its
    own end. For loops that would otherwise go on for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def until(work: Coroutine[None, None, None], *events: asyncio.Event) -> bool:
    """Do `work` until it is done (True) or an event is set (False, and it is cancelled). Its errors are raised."""
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
