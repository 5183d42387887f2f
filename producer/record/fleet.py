"""Which workers live, and which models they serve: heartbeats that run out by themselves."""

import json
from dataclasses import asdict, dataclass, fields

from redis.asyncio import Redis

from producer.record import scripts
from producer.record.keys import key
from producer.record.models import dumps


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
    """

    worker_id: str
    model: str
    mode: str
    slots: int
    state: str
    host: str
    pid: int


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
        # A newer worker may say more than this version knows.
        values = {field.name: said[field.name] for field in fields(WorkerCard)}
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    numbers = ("slots", "pid")
    right = all(isinstance(value, int if name in numbers else str) for name, value in values.items())
    return WorkerCard(**values) if right else None
