"""Who answered a job, noted beside it; and what workers say of themselves at their heartbeats."""

import json

from record_jobs import keys, submitted
from redis.asyncio import Redis

from producer.record import control, fleet, provenance
from producer.record.fleet import WorkerCard, WorkerStats
from producer.record.keys import key
from producer.record.provenance import EngineFacts, JobShare

FACTS = EngineFacts(model="target", mode="psd", drafter="d", versions={"vllm": "1"})
STATS = WorkerStats(12.5, 1, 2, 3, 4, 5, 6, 7, 8.5, 9.5, 10.5)
CARD = WorkerCard("w", "m", "psd", 2, "ready", "host", 1, STATS)


async def test_notes_of_several_workers(redis: Redis) -> None:
    job, other = await submitted(redis, 1), await submitted(redis, 2)
    await provenance.note(redis, "b", FACTS, {job: JobShare(rows=1), other: JobShare(rows=2, estimated=True)})
    await provenance.note(redis, "a", FACTS, {job: JobShare(rows=3, hidden_seconds=1.5)})
    await provenance.note(redis, "b", FACTS, {job: JobShare(rows=4)})
    first, second = await provenance.engines(redis, job)
    assert (first.worker_id, first.rows, first.hidden_seconds, first.estimated) == ("a", 3, 1.5, False)
    assert (second.worker_id, second.rows) == ("b", 4)
    assert (second.mode, second.drafter, second.versions) == ("psd", "d", {"vllm": "1"})
    (note,) = await provenance.engines(redis, other)
    assert (note.rows, note.estimated) == (2, True)


async def test_a_job_that_is_gone_stays_gone_with_its_notes(redis: Redis) -> None:
    job = await submitted(redis, 0, refused=1)
    await provenance.note(redis, "w", FACTS, {job: JobShare(rows=1)})
    assert await control.purge(redis, job)
    while await control.sweep(redis):
        pass
    await provenance.note(redis, "w", FACTS, {job: JobShare(rows=1)})
    assert await keys(redis, job) == set()
    assert await provenance.engines(redis, job) == []


async def test_notes_that_somebody_has_damaged(redis: Redis) -> None:
    job, other = await submitted(redis, 1), await submitted(redis, 1)
    await redis.hset(key("engines", job), mapping={"x": "{", "y": "[]", "z": '{"worker_id": 1}'})  # type: ignore[misc]
    assert await provenance.engines(redis, job) == []
    await redis.set(key("engines", other), "a string")
    await provenance.note(redis, "w", FACTS, {other: JobShare(rows=1), job: JobShare(rows=7)})
    assert [note.rows for note in await provenance.engines(redis, job)] == [7]


async def test_a_full_redis_takes_notes(redis: Redis) -> None:
    job = await submitted(redis, 1)
    await redis.config_set("maxmemory", 1)
    try:
        await provenance.note(redis, "w", FACTS, {job: JobShare(rows=1)})
    finally:
        await redis.config_set("maxmemory", 0)
    assert len(await provenance.engines(redis, job)) == 1


async def test_a_heartbeat_tells_what_was_done(redis: Redis) -> None:
    await fleet.announce(redis, CARD, lease_ms=60_000)
    assert await fleet.living(redis) == [CARD]


async def test_a_worker_of_an_older_or_a_newer_version_is_understood(redis: Redis) -> None:
    await fleet.announce(redis, CARD, lease_ms=60_000)
    said = json.loads(await redis.get(key("worker", "w")))
    for stats, understood in ((None, None), ("x", None), ({"seconds": 1}, None), (said["stats"] | {"new": 1}, STATS)):
        await redis.set(key("worker", "w"), json.dumps(said | {"stats": stats, "unheard": "of"}))
        (card,) = await fleet.living(redis)
        assert (card.worker_id, card.stats) == ("w", understood)
    del said["stats"]
    await redis.set(key("worker", "w"), json.dumps(said))
    assert [card.stats for card in await fleet.living(redis)] == [None]
