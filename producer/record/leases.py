"""The worker's half of the record: claim a shard, renew, finish rows, give back, reap."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from redis.asyncio import Redis

from producer.record import scripts
from producer.record.models import Outcome, Row, RowFault, read_defaults

#: How many expired leases one call of the reaper takes back; the rest waits for the next call.
_REAP_AT_ONCE = 100

#: From so many lost attempts on, a shard runs with nothing else in its engine: `SUSPECT` of lua/schema.lua.
SUSPECT = 2

#: A single row that has taken its worker or engine down so often is answered by nobody: it becomes an error row.
#: The first `SUSPECT` of these attempts may have been others' fault; in the last it was alone.
CONDEMNED = 5


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to answer one shard until it runs out: `epoch` fences off whoever held it before."""

    job_id: str
    shard: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease, and what is left of its shard.

    Attributes:
        lease: the right to it.
        rows: the unfinished rows in input order, the job's defaults in them.
        lost: earlier attempts that took their worker or engine down.
        hopeless: ends of rows that nobody can answer: unreadable ones, and one that is condemned.
        dedupe: rows that ask the same get one answer.
    """

    lease: Lease
    rows: Sequence[Row]
    lost: int = 0
    hopeless: Sequence[Outcome] = ()
    dedupe: bool = False

    @property
    def prompts(self) -> list[list[Row]]:
        """The rows in groups, each to be answered once, for all its rows."""
        if not self.dedupe:
            return [[row] for row in self.rows]
        groups: dict[bytes, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(row.request_key(), []).append(row)
        return list(groups.values())


async def claim(redis: Redis, *, served: str, lease_ms: int, first: str = "") -> Claim | None:
    """Lease the next shard for a worker that serves the model `served`; None when nothing waits.

    `first`: the job to take it from if that has one to claim, whoever's turn it is.
    """
    found = await scripts.run(redis, "claim", served, lease_ms, first)
    if not found:
        return None
    job_id, shard, epoch, lost, defaults, dedupe, *stored = found
    asked = read_defaults(defaults)
    rows: list[Row] = []
    hopeless: list[Outcome] = []
    for index, text in zip(stored[::2], stored[1::2], strict=True):
        try:
            if str(int(index)) != index:
                raise ValueError("not an index of ours")
            if asked is None:
                raise ValueError("the job's defaults are damaged")
            rows.append(Row.from_json(int(index), text).over(asked))
        except ValueError:
            fault = RowFault("unreadable_row", f"what is stored of row {index[:20]!r} (from 0) is no row")
            hopeless.append(Outcome.failed_row(index, None, None, fault))
    rows.sort(key=lambda row: row.index)
    found_rows = Claim(Lease(job_id, int(shard), int(epoch)), rows, int(lost), hopeless, dedupe=dedupe == "1")
    if found_rows.lost >= CONDEMNED and len(found_rows.prompts) == 1:
        message = f"given up after {lost} attempts: each time the worker or its engine died with it, or fell silent"
        fault = RowFault("poison_row", message)
        given_up = [Outcome.failed_row(row.index, row.line, row.custom_id, fault, row.file) for row in rows]
        return replace(found_rows, rows=[], hopeless=[*hopeless, *given_up])
    return found_rows


async def renew(redis: Redis, leases: Sequence[Lease], *, lease_ms: int) -> list[Lease]:
    """Prolong leases in one round trip; returns those that are lost."""
    answers = await scripts.run_many(
        redis, [("renew", [lease.job_id, lease.shard, lease.epoch, lease_ms]) for lease in leases]
    )
    return [lease for lease, held in zip(leases, answers, strict=True) if not held]


async def finish(redis: Redis, batches: Sequence[tuple[Lease, Sequence[Outcome]]]) -> list[int | None]:
    """Write and count the outcomes of rows, in one round trip; each lease's batch is atomic.

    Returns, batch by batch, how many rows were new, or None where the lease is lost (nothing was written).
    May be called again after an error: a row that has a result keeps it and is not counted twice.
    """
    calls: list[scripts.Call] = []
    for lease, outcomes in batches:
        argv: list[str | int] = [lease.job_id, lease.shard, lease.epoch]
        for end in outcomes:
            argv += (end.index, end.line, int(end.failed), end.prompt_tokens, end.completion_tokens)
        calls.append(("finish", argv))
    return [written if written >= 0 else None for written in await scripts.run_many(redis, calls)]


async def release(redis: Redis, lease: Lease, *, lost: bool = False) -> bool:
    """Give a shard back with its unfinished rows; False when the lease was lost (or the shard finished).

    `lost`: the engine died with it, which counts as an attempt.
    """
    how = "lost" if lost else "whole"
    return bool(await scripts.run(redis, "release", lease.job_id, lease.shard, lease.epoch, how))


async def reap(redis: Redis) -> list[tuple[str, int]]:
    """Make the shards of expired leases claimable; returns their (job, shard). Anybody may call it."""
    seconds, micros = await redis.time()
    found = await scripts.run(redis, "reap", _REAP_AT_ONCE, seconds * 1000 + micros // 1000)
    return [(job_id, int(shard)) for job_id, shard in zip(found[::2], found[1::2], strict=True)]
