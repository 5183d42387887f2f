"""Completion of JOB in a shell: from Redis, quick or not at all, and never with a word on the terminal."""

import asyncio
import logging
from contextlib import redirect_stderr
from io import StringIO

from producer.cli.common import printable
from producer.locate import redis_at
from producer.record import jobs

#: A shell waits for this.
_SECONDS = 0.5


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Ids and names of jobs that begin so, the newest first, each with what it stands for."""
    logging.disable()
    try:
        with redirect_stderr(StringIO()):
            return asyncio.run(_complete(incomplete))
    except Exception:  # whatever it is, a shell is no place for it
        return []


async def _complete(incomplete: str) -> list[tuple[str, str]]:
    async with asyncio.timeout(_SECONDS), redis_at(None) as redis:
        found = (await jobs.statuses(redis))[::-1]
    ids = [(job.job_id, f"{printable(job.name)}, {job.state}") for job in found]
    names = {printable(job.name): f"job {job.job_id}, {job.state}" for job in reversed(found)}
    return [(word, meaning) for word, meaning in [*ids, *names.items()] if word.startswith(incomplete)]
