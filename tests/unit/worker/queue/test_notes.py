"""Notes on their way to a Redis that is scripted."""

import asyncio
from collections.abc import Mapping

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from producer.record import provenance
from producer.record.fleet import WorkerStats
from producer.record.models import Outcome
from producer.record.provenance import EngineFacts, JobShare
from worker.queue import notes as module
from worker.queue.notes import Notes

FACTS = EngineFacts(model="m", mode="psd")


class Record:
    """Takes notes while it is `open`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = True
        self.notes: list[dict[str, int]] = []
        self.slow: asyncio.Event | None = None
        monkeypatch.setattr(provenance, "note", self.note)

    async def note(self, _: object, worker_id: str, facts: EngineFacts, shares: Mapping[str, JobShare]) -> None:
        if not self.open:
            raise RedisConnectionError("gone")
        assert (worker_id, facts) == ("w", FACTS)
        if slow := self.slow:
            self.slow = None
            await slow.wait()
        self.notes.append({job: share.rows for job, share in shares.items()})


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    monkeypatch.setattr(module, "_SOON_SECONDS", 0.01)
    return Record(monkeypatch)


@pytest.fixture
def notes() -> Notes:
    return Notes(None, "w", lambda: FACTS, lambda: WorkerStats(1, 1, 0, 0, 1, 1))  # type: ignore[arg-type]


def ended(notes: Notes, job: str) -> None:
    notes.ended(job, Outcome(0, "{}", False, 1, 1))


async def test_rows_that_end_together_are_one_note_soon_after(record: Record, notes: Notes) -> None:
    running = asyncio.create_task(notes.run())
    for job in "aab":
        ended(notes, job)
    await asyncio.sleep(0.05)
    ended(notes, "a")
    await asyncio.sleep(0.05)
    running.cancel()
    assert record.notes == [{"a": 2, "b": 1}, {"a": 3}]


async def test_where_nothing_has_changed_nothing_is_written(record: Record, notes: Notes) -> None:
    await notes.write()
    ended(notes, "a")
    await notes.write()
    await notes.write()
    assert record.notes == [{"a": 1}]


async def test_what_redis_did_not_take_is_written_later(record: Record, notes: Notes) -> None:
    record.open = False
    running = asyncio.create_task(notes.run())
    ended(notes, "a")
    await asyncio.sleep(0.05)
    assert not running.done()
    running.cancel()
    with pytest.raises(RedisConnectionError):
        await notes.write()
    record.open = True
    await notes.write()
    assert record.notes == [{"a": 1}]


async def test_a_note_that_is_slow_does_not_come_over_a_newer_one(record: Record, notes: Notes) -> None:
    record.slow = arrives = asyncio.Event()
    ended(notes, "a")
    first = asyncio.create_task(notes.write())
    await asyncio.sleep(0)
    ended(notes, "a")
    second = asyncio.create_task(notes.write())
    await asyncio.sleep(0)
    arrives.set()
    await asyncio.gather(first, second)
    assert record.notes == [{"a": 1}, {"a": 2}]
