"""What users do to jobs during a storm: an urgent one, a cancelled one, pauses, and at the end retry and purge."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from chaos.storm.audit import Job
from chaos.storm.producers import Producers
from chaos.storm.progress import Progress
from chaos.storm.rows import write_job
from redis.asyncio import Redis
from redis.exceptions import RedisError

#: Rows of the jobs that come between the others.
URGENT_ROWS, CANCELLED_ROWS = 100, 1000

#: A job with fewer rows left may end before a pause is there.
_PAUSABLE_ROWS = 100

#: How long a job may take that nothing should hold up, in a storm (seconds).
_PATIENCE_SECONDS = 90.0

#: What is not of a job's own but of its shards: gone when it is cancelled.
_OF_SHARDS = ("rows", "open", "epochs", "lost")


class Commands:
    """`jobs` are those that came between the others; what goes wrong is found in the producers' `findings`."""

    def __init__(self, producers: Producers, redis: Redis, progress: Progress, folder: Path, seed: int) -> None:
        self.jobs: list[Job] = []
        self._producers = producers
        self._redis = redis
        self._progress = progress
        self._folder = folder
        self._seed = seed

    async def urgent(self) -> bool:
        """A small job with a priority; True if it overtook others."""
        job = await self._between("urgent", URGENT_ROWS, "--priority", "10")
        if not await self._await(lambda: self._is_completed(job.job_id)):
            self._find(f"the urgent job {job.job_id} has not ended after {_PATIENCE_SECONDS:g} s")
        return self._progress.backlog > 0

    async def cancelled(self) -> bool:
        """A job that is cancelled while it runs: nothing of its shards stays, nothing is answered any more."""
        job = await self._between("cancelled", CANCELLED_ROWS, cancelled=True)
        if not await self._await(lambda: self._has_done(job.job_id, CANCELLED_ROWS // 20)):
            self._find(f"job {job.job_id} does not run after {_PATIENCE_SECONDS:g} s")
        code, out, _ = await self._producers.run("cancel", job.job_id, "--json")
        if code != 0:
            self._find(f"job {job.job_id} was not cancelled")
            return False
        done = json.loads(out)["done"]
        left = [key async for key in self._redis.scan_iter(f"minedraft:job:{job.job_id}:*", count=1000)]
        for key in left:
            if key.split(":")[3] in _OF_SHARDS:
                self._find(f"{key} is left after cancel")
        await asyncio.sleep(2)  # what is in an engine ends
        if (now := await self._done(job.job_id)) != done:
            self._find(f"job {job.job_id} had {done} rows when it was cancelled and has {now}")
        return bool(done < CANCELLED_ROWS)

    async def pause(self) -> str | None:
        """Pause the job with most rows left; its id, or None when there is none to pause."""
        job, left = self._progress.busiest
        if left < _PAUSABLE_ROWS:
            return None
        code, _, _ = await self._producers.run("pause", job, allowed="is completed already")
        return job if code == 0 else None

    async def resume(self, job: str, seconds: float) -> None:
        """Let a paused job go on after so long a time, in which nobody may have claimed of it."""
        with self._progress.paused():
            before = await self._epochs(job)
            await asyncio.sleep(seconds)
            now = await self._epochs(job)
            for shard in before.keys() & now.keys() if before and now else ():
                if before[shard] != now[shard]:
                    self._find(f"shard {shard} of job {job} was claimed while it was paused")
            goes_on = "is not paused but running"  # the answer of an earlier try was lost
            while True:
                code, _, err = await self._producers.run("resume", job, allowed=goes_on)
                if code == 0 or goes_on in err:
                    return
                await asyncio.sleep(1)

    async def retry(self, job: str, failures: int) -> None:
        """Retry a job that has ended and wait until it has again; so many of its rows must run."""
        code, out, err = await self._producers.run("retry", job, "--json")
        retried = json.loads(out)["retried"] if code == 0 else err
        if retried != failures:
            self._find(f"retry of job {job}: {retried} where {failures} rows had failed")
        if not await self._await(lambda: self._is_completed(job)):
            self._find(f"job {job} has not ended after retry")

    async def purge(self, job: str) -> None:
        """Remove a job that has ended."""
        if (await self._producers.run("purge", job))[0] != 0:
            self._find(f"job {job} was not purged")

    async def _between(self, name: str, rows: int, *flags: str, cancelled: bool = False) -> Job:
        number = len(self.jobs)
        path = self._folder / f"{name}-{number}.jsonl"
        await asyncio.to_thread(write_job, path, self._seed * 1000 + 900 + number, rows)
        job = Job(await self._producers.submit(path, *flags), path, path.with_suffix(".results"), cancelled=cancelled)
        self.jobs.append(job)
        return job

    async def _is_completed(self, job: str) -> bool:
        return bool(await self._redis.hget(f"minedraft:job:{job}", "state") == "completed")

    async def _has_done(self, job: str, rows: int) -> bool:
        return await self._done(job) >= rows

    async def _done(self, job: str) -> int:
        return int(await self._redis.hget(f"minedraft:job:{job}", "done") or 0)

    async def _await(self, condition: Callable[[], Awaitable[bool]]) -> bool:
        """Wait until it holds; False when it does not for too long."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if await condition():
                return True
            await asyncio.sleep(0.05)
        return False

    async def _epochs(self, job: str) -> dict[str, str]:
        """How often each shard was claimed; nothing while Redis is away."""
        try:
            return dict(await self._redis.hgetall(f"minedraft:job:{job}:epochs"))
        except (RedisError, OSError):
            return {}

    def _find(self, what: str) -> None:
        self._producers.findings.append(what)
