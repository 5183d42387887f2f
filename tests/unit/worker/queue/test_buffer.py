"""Results on their way to a Redis that is scripted."""

import asyncio
import errno
import json
import logging
from collections.abc import AsyncIterator, Sequence

import pytest
from prometheus_client import CollectorRegistry
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from producer.record import control, leases
from producer.record.leases import Lease
from producer.record.models import CHAT_URL, Outcome, Row
from worker.metrics import Metrics
from worker.queue import buffer as module
from worker.queue.buffer import ResultBuffer, fit
from worker.queue.health import RedisHealth

ONE, OTHER = Lease("one", 0, 1), Lease("other", 0, 1)

Writes = Sequence[tuple[Lease, Sequence[Outcome]]]


class Record:
    """Takes results while it is `open`, but none of the jobs in `broken`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = True
        self.broken: set[str] = set()
        self.batches: list[list[str]] = []
        self.paused: list[tuple[str, str]] = []
        monkeypatch.setattr(control, "pause", self.pause)
        monkeypatch.setattr(leases, "finish", self.finish)

    async def finish(self, _: object, writes: Writes) -> list[int | None]:
        if not self.open:
            raise RedisConnectionError("gone")
        if any(lease.job_id in self.broken for lease, _ in writes):
            raise ResponseError("WRONGTYPE of key")
        self.batches.append([outcome.line for _, outcomes in writes for outcome in outcomes])
        return [len(outcomes) for _, outcomes in writes]

    async def pause(self, _: object, job_id: str, reason: str) -> bool:
        self.paused.append((job_id, reason))
        return True

    def lines(self) -> list[str]:
        return [line for batch in self.batches for line in batch]


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    return Record(monkeypatch)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def buffer(record: Record, registry: CollectorRegistry) -> AsyncIterator[ResultBuffer]:
    metrics = Metrics(registry)
    made = ResultBuffer(None, metrics, RedisHealth(metrics))  # type: ignore[arg-type]
    writing = asyncio.create_task(made.run())
    yield made
    writing.cancel()
    await asyncio.wait([writing])
    assert made._bytes == made._count == made._spill.bytes == 0


def put(buffer: ResultBuffer, lines: Sequence[str], lease: Lease = ONE) -> list[asyncio.Task[bool]]:
    outcomes = [Outcome(index, line, failed=False) for index, line in enumerate(lines)]
    return [asyncio.create_task(buffer.put(lease, outcome)) for outcome in outcomes]


async def wait_for(registry: CollectorRegistry, metric: str, value: float) -> None:
    async with asyncio.timeout(5):
        while registry.get_sample_value(metric) != value:
            await asyncio.sleep(0.001)


async def test_a_batch_is_bounded_in_rows_and_in_bytes(
    buffer: ResultBuffer, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 10)
    monkeypatch.setattr(module, "_MOST", 4)
    lines = ["aaaa", "bbbb", "cccc", "d" * 30, "é" * 4, "f", *"ghijk"]
    assert all(await asyncio.gather(*put(buffer, lines)))
    assert record.batches == [["aaaa", "bbbb"], ["cccc"], ["d" * 30], ["é" * 4, "f", "g"], ["h", "i", "j", "k"]]


async def test_what_is_too_much_for_memory_waits_on_disk(
    buffer: ResultBuffer, record: Record, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MEMORY_BYTES", 10)
    record.open = False
    lines = ["12345", "12345", "überlang", "x", "y" * 50]
    waiting = put(buffer, lines)
    await wait_for(registry, "minedraft_results_waiting", 5)
    await wait_for(registry, "minedraft_results_spilled_bytes", 9 + 1 + 50)
    record.open = True
    assert all(await asyncio.gather(*waiting))
    assert sorted(record.lines()) == sorted(lines)
    assert registry.get_sample_value("minedraft_results_spilled_bytes") == 0
    assert registry.get_sample_value("minedraft_results_waiting") == 0
    assert registry.get_sample_value("minedraft_rows_total", {"outcome": "answered"}) == 5


async def test_without_room_on_disk_results_stay_in_memory(
    buffer: ResultBuffer,
    record: Record,
    registry: CollectorRegistry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def full(_: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "MEMORY_BYTES", 0)
    monkeypatch.setattr(buffer._spill, "keep", full)
    record.open = False
    with caplog.at_level(logging.WARNING, "worker.queue.buffer"):
        waiting = put(buffer, ["a", "b", "c"])
        await wait_for(registry, "minedraft_results_waiting", 3)
        record.open = True
        assert all(await asyncio.gather(*waiting))
    assert sorted(record.lines()) == ["a", "b", "c"]
    assert caplog.text.count("No space left") == 1


async def test_a_job_whose_results_are_refused_holds_up_no_other(
    buffer: ResultBuffer, record: Record, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    record.broken = {"one"}
    refused, fine = put(buffer, ["a", "b"]), put(buffer, ["c", "d"], OTHER)
    assert await asyncio.gather(*refused, *fine) == [False, False, True, True]
    assert sorted(record.lines()) == ["c", "d"]
    assert "job one: Redis refuses results of shard 0: WRONGTYPE" in caplog.text
    assert set(record.paused) == {("one", "Redis refuses its results: WRONGTYPE of key")}
    assert registry.get_sample_value("minedraft_redis_up") == 1
    assert registry.get_sample_value("minedraft_rows_total", {"outcome": "answered"}) == 2


def test_an_answer_that_is_too_large_becomes_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(3, 7, "mine", CHAT_URL, {})
    monkeypatch.setattr(module, "LONGEST_LINE", 8 << 20)
    fits = Outcome(3, "é" * (4 << 20), failed=False)
    assert fit(row, fits) is fits
    ended = fit(row, Outcome(3, "é" * (4 << 20) + ".", failed=False))
    assert ended.failed
    said = json.loads(ended.line)
    assert (said["custom_id"], said["error"]["code"], said["error"]["line"]) == ("mine", "answer_too_large", 7)
    assert "8 MiB" in said["error"]["message"]
