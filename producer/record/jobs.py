"""The producer's half of the record: stage, commit, look, fetch."""

import base64
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from producer.record import scripts
from producer.record.control import sweep
from producer.record.keys import key
from producer.record.models import SHARD_ROWS, JobState, Outcome, Row, dumps, read_defaults
from producer.record.outage import outlast
from producer.record.trouble import sound

#: Results read from Redis in one round trip, and about how many bytes of them.
_PAGE = 256
_PAGE_BYTES = 4 << 20

#: How long a submission waits for a Redis that goes away.
_AWAY_SECONDS = 60.0

#: What `commit` answers when the record has another number of rows than were staged, and how `stage` says it earlier.
_OTHER_ROWS = -1
_ROWS_MISSING = "an earlier part of the job is missing"

_COUNTERS = (
    "rows",
    "done",
    "failed",
    "invalid",
    "consumed",
    "attempts_lost",
    "prompt_tokens",
    "completion_tokens",
    "priority",
)


class SubmissionLost(Exception):  # noqa: N818 - a state that the caller reports
    """What was staged is not all there any more; the message says what to do."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How a job is treated; what its answers are does not depend on it.

    Attributes:
        priority: -100 to 100; as long as a job of a higher one has shards to claim, no other gets a turn.
        max_error_rate: the job pauses itself when more than this share of its rows fails, 50 of them seen; 0 to 1.
        ttl_s: how long the job stays in Redis after its end, in seconds; None: until it is purged.
    """

    priority: int = 0
    max_error_rate: float | None = None
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's counters as Redis has them; times are seconds since the epoch, None for "not yet".

    `done` counts every row that has ended, `failed` those of them that ended with an error, `invalid` those
    that were refused at intake already (they are in `failed` too), `consumed` those whose result has left Redis.
    `attempts_lost` counts claims of a shard that took their worker or engine down, or went silent. `reason` says
    why a job paused itself, and is empty otherwise.
    """

    job_id: str
    state: JobState
    model: str
    name: str
    rows: int
    done: int
    failed: int
    invalid: int
    consumed: int
    attempts_lost: int
    prompt_tokens: int
    completion_tokens: int
    priority: int
    reason: str
    created: float | None
    started: float | None
    ended: float | None


@dataclass(slots=True)
class Submission:
    """A job being staged: `add` rows in order, then `commit`, or `discard` to leave nothing behind.

    Holds at most one shard of rows and `BUFFERED_BYTES` of them; everything else is in Redis. One that goes away
    meanwhile is waited for, a minute long, and `say` is told.
    """

    redis: Redis
    job_id: str
    say: Callable[[str], Any] = lambda _: None
    rows: int = 0
    invalid: int = 0
    _shards: int = 0
    _calls_made: int = 0
    _good: list[str | int] = field(default_factory=list)
    _bad: list[str | int] = field(default_factory=list)
    _calls: list[scripts.Call] = field(default_factory=list)
    _bytes: int = 0

    #: Staged text that is gathered before it is sent: a round trip's worth.
    BUFFERED_BYTES = 1 << 20

    @classmethod
    async def begin(
        cls,
        redis: Redis,
        *,
        model: str,
        name: str,
        options: JobOptions | None = None,
        defaults: dict[str, Any] | None = None,
        say: Callable[[str], Any] = lambda _: None,
    ) -> "Submission":
        """Create the job, invisible to workers.

        Args:
            redis: where.
            model: what it will be answered by.
            name: for people.
            options: how it is treated.
            defaults: parameters of every row that does not say otherwise; stored once, and put into the rows when
                they are claimed.
            say: hears when Redis goes away and is waited for.
        """
        await sweep(redis)  # what killed producers left, where no worker does it
        asked = options or JobOptions()
        rate = "" if asked.max_error_rate is None else str(asked.max_error_rate)
        ttl = "" if asked.ttl_s is None else asked.ttl_s * 1000
        asked_of_rows = dumps(defaults) if defaults else ""
        while True:
            job_id = base64.b32encode(secrets.token_bytes(5)).decode().lower()
            if await scripts.run(redis, "begin", job_id, model, name, asked.priority, rate, ttl, asked_of_rows):
                return cls(redis, job_id, say)

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
            self._calls_made += 1
            numbers = (self._calls_made, self._shards, good)
            self._calls.append(("stage", [self.job_id, *numbers, *self._good, *self._bad]))
            self._shards += bool(good)
            self._good, self._bad = [], []

    async def _send(self) -> None:
        calls, self._calls, self._bytes = self._calls, [], 0
        if calls and not all(await self._run(calls)):
            raise self._lost()

    async def _run(self, calls: Sequence[scripts.Call]) -> list[Any]:
        """Run scripts that do nothing the second time."""
        return await outlast(lambda: self._try(calls), say=self.say, seconds=_AWAY_SECONDS)

    async def _try(self, calls: Sequence[scripts.Call]) -> list[Any]:
        try:
            return await scripts.run_many(self.redis, calls)
        except NoScriptError as error:
            if _ROWS_MISSING in str(error):  # and all of these calls were sent again already
                raise self._older() from None
            raise

    def _older(self) -> SubmissionLost:
        return SubmissionLost(f"Redis went back to an older state and lost rows of job {self.job_id}: submit it again")

    def _lost(self) -> SubmissionLost:
        return SubmissionLost(f"Redis has no job {self.job_id} in submission any more: submit it again")

    async def commit(self, identity: str, *, insist: bool) -> str:
        """Start the job, all of it at once. Returns the id of the job that stands for these rows.

        That is an earlier job when the same `identity` was committed before (and not cancelled), unless
        `insist`; this submission is discarded then.

        Raises:
            SubmissionLost: not all that was staged is there.
        """
        self._close_shard()
        await self._send()
        how = "new" if insist else "same"
        (standing,) = await self._run([("commit", [self.job_id, identity, how, self.rows])])
        if standing is None:
            raise self._lost()
        if standing == _OTHER_ROWS:
            raise self._older()
        if standing != self.job_id:
            with suppress(RedisError):  # away again: `sweep` does it, a day later
                await self.discard()
        return str(standing)

    async def discard(self) -> None:
        """Remove everything that was staged."""
        await scripts.run(self.redis, "discard", self.job_id)
        while await sweep(self.redis):
            pass


async def status(redis: Redis, job_id: str) -> JobStatus | None:
    """The job's counters, or None when there is no such job."""
    stored = await redis.execute_command("HGETALL", key("job", job_id))
    return _status(job_id, stored) if stored else None


async def asked(redis: Redis, job_id: str) -> tuple[str | None, dict[str, Any] | None]:
    """What a job was submitted as: its identity, and its defaults (None: they are damaged)."""
    identity, defaults = await redis.execute_command("HMGET", key("job", job_id), "identity", "defaults")
    return identity, read_defaults(defaults or "")


async def statuses(redis: Redis) -> list[JobStatus]:
    """Every job, oldest first, but those whose counters somebody has damaged."""
    job_ids = await redis.zrange(key("jobs"), 0, -1)
    async with redis.pipeline(transaction=False) as pipe:
        for job_id in job_ids:
            pipe.hgetall(key("job", job_id))
        stored = [sound(answer) for answer in await pipe.execute(raise_on_error=False)]
    return [_status(job_id, fields) for job_id, fields in zip(job_ids, stored, strict=True) if fields]


def _status(job_id: str, stored: dict[str, str]) -> JobStatus:
    def seconds(name: str) -> float | None:
        return int(stored[name]) / 1000 if name in stored else None

    counters = {name: int(stored[name]) for name in _COUNTERS}
    return JobStatus(
        job_id=job_id,
        state=JobState(stored["state"]),
        model=stored["model"],
        name=stored["name"],
        reason=stored.get("reason", ""),
        created=seconds("created"),
        started=seconds("started"),
        ended=seconds("ended"),
        **counters,
    )


async def results(redis: Redis, job_id: str, *, order: Literal["input", "completion"]) -> AsyncIterator[str]:
    """The lines of the results file that exist now, without newline, read a page at a time.

    `input` follows the submitted file (rows without a result yet, or any more, are left out), `completion` the
    order in which rows ended.
    """
    found = await status(redis, job_id)
    if found is None:
        return
    indices: Sequence[int | str] = range(found.rows)
    if order == "completion":
        # All at once: the list moves while others consume or retry. It takes some 60 MB for a million rows.
        async with redis.pipeline(transaction=True) as pipe:
            for name in ("taken", "finished"):
                pipe.lrange(key(name, job_id), 0, -1)
            taken, finished = await pipe.execute()
        indices = [*taken, *finished]
    at = 0
    while at < len(indices):
        looked_at, *lines = await scripts.run(redis, "read", job_id, _PAGE_BYTES, *indices[at : at + _PAGE])
        at += looked_at
        for line in lines:
            yield line
