"""Looking at jobs: their counters, and what they were submitted as."""

from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from producer.record.keys import key
from producer.record.models import JobState, read_defaults
from producer.record.trouble import sound

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
_ORIGIN = ["name", "state", "asked_model", "model", "defaults", "dedupe", "rows", "identity"]


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
    why a job paused itself, and is empty otherwise. `dedupe`: rows with the same request get one answer; `copies`
    counts those that get the answer of an earlier one.
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
    dedupe: bool = False
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """What a job was submitted as.

    Attributes:
        job_id: the job.
        name: for people.
        state: where it is in its life.
        model: what was asked for; the job may be bound to a certain model since.
        defaults: parameters of all its rows; None when they are damaged.
        dedupe: rows with the same request get one answer.
        rows: how many it has.
        identity: hash of all this; "" while it is being submitted.
    """

    job_id: str
    name: str
    state: JobState
    model: str
    defaults: dict[str, Any] | None
    dedupe: bool
    rows: int
    identity: str


async def status(redis: Redis, job_id: str) -> JobStatus | None:
    """The job's counters, or None when there is no such job."""
    stored = await redis.execute_command("HGETALL", key("job", job_id))
    return _status(job_id, stored) if stored else None


async def asked(redis: Redis, job_id: str) -> tuple[str | None, dict[str, Any] | None]:
    """What a job was submitted as: its identity, and its defaults (None: they are damaged)."""
    identity, defaults = await redis.execute_command("HMGET", key("job", job_id), "identity", "defaults")
    return identity, read_defaults(defaults or "")


async def origin(redis: Redis, job_id: str) -> Origin | None:
    """What a job was submitted as, or None when there is no such job."""
    return (await _origins(redis, [job_id]))[0]


async def namesakes(redis: Redis, name: str) -> list[Origin]:
    """The jobs of this name that were committed and not cancelled, oldest first."""
    found = await _origins(redis, await redis.zrange(key("jobs"), 0, -1))
    gone = (JobState.SUBMITTING, JobState.CANCELLED)
    return [each for each in found if each and each.name == name and each.identity and each.state not in gone]


async def _origins(redis: Redis, job_ids: list[str]) -> list[Origin | None]:
    async with redis.pipeline(transaction=False) as pipe:
        for job_id in job_ids:
            pipe.hmget(key("job", job_id), _ORIGIN)
        stored = [sound(answer) for answer in await pipe.execute(raise_on_error=False)]
    return [_origin(job_id, fields) for job_id, fields in zip(job_ids, stored, strict=True)]


def _origin(job_id: str, stored: list[str | None] | None) -> Origin | None:
    name, state, asked_model, model, defaults, dedupe, rows, identity = stored or [None] * len(_ORIGIN)
    if state is None:
        return None
    return Origin(
        job_id,
        name or "",
        JobState(state),
        asked_model or model or "",
        read_defaults(defaults or ""),
        dedupe == "1",
        int(rows or 0),
        identity or "",
    )


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
        dedupe=stored.get("dedupe") == "1",
        copies=int(stored.get("copies", 0)),
        **counters,
    )
