"""The producer's half of the record: stage, commit, look, fetch."""

import base64
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from redis.asyncio import Redis

from producer.record import scripts
from producer.record.keys import key
from producer.record.models import JobState, Outcome, Row

#: Rows in a shard: the unit that a worker leases. Small enough that two workers share a short job and that
#: little is repeated when one dies, large enough that a claim (one round trip) is cheap beside its rows.
SHARD_ROWS = 16

#: A submission that got no rows for so long was left by a producer that is dead; the next one removes it.
_ABANDONED_MS = 24 * 3600 * 1000

#: Results read from Redis in one round trip.
_PAGE = 256


class SubmissionLost(Exception):  # noqa: N818 - a state that the caller reports
    """The job is not in submission any more (discarded, or committed by somebody else)."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's counters as Redis has them; times are seconds since the epoch, None for "not yet".

    `done` counts every row that has ended, `failed` those of them that ended with an error, `invalid` those
    that were refused at intake already (they are in `failed` too).
    """

    job_id: str
    state: JobState
    model: str
    name: str
    rows: int
    done: int
    failed: int
    invalid: int
    prompt_tokens: int
    completion_tokens: int
    created: float | None
    started: float | None
    ended: float | None


@dataclass(slots=True)
class Submission:
    """A job being staged: `add` rows in order, then `commit`, or `discard` to leave nothing behind.

    Holds at most one shard of rows and `BUFFERED_BYTES` of them; everything else is in Redis.
    """

    redis: Redis
    job_id: str
    rows: int = 0
    invalid: int = 0
    _shards: int = 0
    _good: list[str | int] = field(default_factory=list)
    _bad: list[str | int] = field(default_factory=list)
    _calls: list[scripts.Call] = field(default_factory=list)
    _bytes: int = 0

    #: Staged text that is gathered before it is sent: a round trip's worth.
    BUFFERED_BYTES = 1 << 20

    @classmethod
    async def begin(cls, redis: Redis, *, model: str, name: str) -> "Submission":
        """Create the job, invisible to workers; `model` is what it will be answered by."""
        while True:
            job_id = base64.b32encode(secrets.token_bytes(5)).decode().lower()
            if await scripts.run(redis, "begin", job_id, model, name, _ABANDONED_MS):
                return cls(redis, job_id)

    async def add(self, row: Row, text: str) -> None:
        """Stage a good row; `text` is its `to_json()`."""
        self._good += (row.index, text)
        await self._gathered(len(text), full=len(self._good) == 2 * SHARD_ROWS)

    async def refuse(self, outcome: Outcome) -> None:
        """Stage a row that ended at intake: its error line is a result already."""
        self.invalid += 1
        self._bad += (outcome.index, outcome.line)
        await self._gathered(len(outcome.line), full=len(self._bad) == 2 * _PAGE)

    async def _gathered(self, size: int, *, full: bool) -> None:
        self.rows += 1
        self._bytes += size
        if full or self._bytes > self.BUFFERED_BYTES:
            self._close_shard()
        if self._bytes > self.BUFFERED_BYTES:
            await self._send()

    def _close_shard(self) -> None:
        if self._good or self._bad:
            good = len(self._good) // 2
            self._calls.append(("stage", [self.job_id, self._shards, good, *self._good, *self._bad]))
            self._shards += bool(good)
            self._good, self._bad = [], []

    async def _send(self) -> None:
        calls, self._calls, self._bytes = self._calls, [], 0
        if calls and not all(await scripts.run_many(self.redis, calls)):
            raise SubmissionLost(f"job {self.job_id} is not in submission any more")

    async def commit(self, identity: str, *, insist: bool) -> str:
        """Start the job, all of it at once. Returns the id of the job that stands for these rows.

        That is an earlier job when the same `identity` was committed before (and not cancelled), unless
        `insist`; this submission is discarded then.
        """
        self._close_shard()
        await self._send()
        standing = await scripts.run(self.redis, "commit", self.job_id, identity, "new" if insist else "same")
        if standing is None:
            raise SubmissionLost(f"job {self.job_id} is not in submission any more")
        if standing != self.job_id:
            await self.discard()
        return str(standing)

    async def discard(self) -> None:
        """Remove everything that was staged."""
        await scripts.run(self.redis, "discard", self.job_id)


async def status(redis: Redis, job_id: str) -> JobStatus | None:
    """The job's counters, or None when there is no such job."""
    stored = await redis.execute_command("HGETALL", key("job", job_id))
    return _status(job_id, stored) if stored else None


async def statuses(redis: Redis) -> list[JobStatus]:
    """Every job, oldest first."""
    job_ids = await redis.zrange(key("jobs"), 0, -1)
    async with redis.pipeline(transaction=False) as pipe:
        for job_id in job_ids:
            pipe.hgetall(key("job", job_id))
        stored = await pipe.execute()
    return [_status(job_id, fields) for job_id, fields in zip(job_ids, stored, strict=True) if fields]


def _status(job_id: str, stored: dict[str, str]) -> JobStatus:
    def seconds(name: str) -> float | None:
        return int(stored[name]) / 1000 if name in stored else None

    counters = {
        name: int(stored[name]) for name in ("rows", "done", "failed", "invalid", "prompt_tokens", "completion_tokens")
    }
    return JobStatus(
        job_id=job_id,
        state=JobState(stored["state"]),
        model=stored["model"],
        name=stored["name"],
        created=seconds("created"),
        started=seconds("started"),
        ended=seconds("ended"),
        **counters,
    )


async def results(redis: Redis, job_id: str, *, order: Literal["input", "completion"]) -> AsyncIterator[str]:
    """The lines of the results file that exist now, without newline, read a page at a time.

    `input` follows the submitted file (rows without a result yet are left out), `completion` the order in
    which rows ended.
    """
    found = await status(redis, job_id)
    if found is None:
        return
    total = found.rows if order == "input" else found.done
    for start in range(0, total, _PAGE):
        stop = min(start + _PAGE, total)
        indices: Iterable[int | str] = range(start, stop)
        if order == "completion":
            indices = await redis.execute_command("LRANGE", key("finished", job_id), start, stop - 1)
        for line in await _lines(redis, job_id, [str(index) for index in indices]):
            yield line


async def _lines(redis: Redis, job_id: str, indices: Sequence[str]) -> list[str]:
    lines = await redis.execute_command("HMGET", key("results", job_id), *indices) if indices else []
    return [line for line in lines if line is not None]
