"""Which workers live, which models they serve, and what they have done: heartbeats that run out by themselves."""

import json
from dataclasses import asdict, dataclass, replace

from redis.asyncio import Redis

from producer.record import scripts, wire
from producer.record.keys import key
from producer.record.models import dumps


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What a worker has done since it started; every value but `in_flight` only grows.

    Attributes:
        seconds: how long it has been up, by its own clock: the time between two heartbeats is the difference.
        answered: rows that it answered, their results in Redis.
        failed: rows that it ended with an error.
        in_flight: rows in its engine now.
        prompt_tokens: of the answered rows.
        completion_tokens: of the answered rows.
        drafted: draft tokens that were verified.
        accepted: those of them that were accepted.
        verify_seconds: time in which the target verified (V), `psd` only.
        draft_seconds: time in which the drafter drafted (t), `psd` only.
        hidden_seconds: the part of `draft_seconds` in which a batch was being verified, `psd` only.
    """

    seconds: float
    answered: int
    failed: int
    in_flight: int
    prompt_tokens: int
    completion_tokens: int
    drafted: int = 0
    accepted: int = 0
    verify_seconds: float = 0.0
    draft_seconds: float = 0.0
    hidden_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerCard:
    """What a worker says of itself.

    Attributes:
        worker_id: unique among living workers.
        model: the served model name, by which jobs are routed.
        mode: `ar`, `sd` or `psd`; `fake`, where no model answers.
        slots: how many shards it works on at once.
        state: `starting`, `ready`, `draining`.
        host: where it runs.
        pid: its process there.
        stats: what it has done; None from a worker that does not say it.
    """

    worker_id: str
    model: str
    mode: str
    slots: int
    state: str
    host: str
    pid: int
    stats: WorkerStats | None = None


async def announce(redis: Redis, card: WorkerCard, *, lease_ms: int) -> None:
    """Be alive for `lease_ms` more."""
    await scripts.run(redis, "announce", card.worker_id, dumps(asdict(card)), lease_ms)


async def retire(redis: Redis, worker_id: str) -> None:
    """Be gone at once."""
    async with redis.pipeline() as pipe:
        pipe.zrem(key("workers"), worker_id)
        pipe.delete(key("worker", worker_id))
        await pipe.execute()


async def living(redis: Redis) -> list[WorkerCard]:
    """The workers whose heartbeat has not run out; what is no worker's card is passed over."""
    return [card for text in await scripts.run(redis, "living") if (card := _read(text)) is not None]


def _read(text: str) -> WorkerCard | None:
    try:
        said = json.loads(text)
        stats = wire.read(WorkerStats, said.pop("stats", None))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
    card = wire.read(WorkerCard, said)
    return None if card is None else replace(card, stats=stats)
