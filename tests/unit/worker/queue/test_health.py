"""An outage has one beginning and one end, whoever meets it."""

import asyncio
import logging

import pytest
from prometheus_client import CollectorRegistry
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ResponseError

from worker.backoff import Backoff
from worker.metrics import Metrics
from worker.queue.health import CLAIMS, RedisHealth

GONE = RedisConnectionError("gone")


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def health(registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> RedisHealth:
    caplog.set_level(logging.INFO)
    return RedisHealth(Metrics(registry))


async def test_an_outage_is_told_once_and_ends_with_its_last_victim(
    health: RedisHealth, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    health.waits(2)
    for caller in ("leases", "results", "leases"):
        health.failed(caller, GONE)
    health.waits(7)
    health.worked("tokens")
    health.worked("leases")
    health.waits(1)
    assert registry.get_sample_value("minedraft_redis_up") == 0
    health.worked("results")
    health.worked("results")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "away (unreachable): gone" in caplog.text
    assert "7 results waited" in caplog.text
    assert registry.get_sample_value("minedraft_redis_up") == 1
    assert registry.get_sample_value("minedraft_redis_errors_total", {"kind": "unreachable"}) == 3
    assert registry.get_sample_value("minedraft_results_waiting") == 1


async def test_an_outage_that_changes_its_kind_is_told_again(
    health: RedisHealth, caplog: pytest.LogCaptureFixture
) -> None:
    health.failed("leases", GONE)
    health.failed("leases", ResponseError("MISCONF no disk"))
    health.failed("leases", ResponseError("MISCONF no disk"))
    assert len(caplog.records) == 2
    assert "(disk)" in caplog.records[1].message


async def test_what_redis_refuses_one_caller_holds_up_nobody(
    health: RedisHealth, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        health.failed("reaper", ResponseError("WRONGTYPE of key"))
    assert registry.get_sample_value("minedraft_redis_up") == 1
    assert [record.message for record in caplog.records] == ["reaper: Redis refuses: WRONGTYPE of key"]
    async with asyncio.timeout(1):
        await health.ready()


async def test_no_claim_while_redis_is_away_and_one_at_once_when_it_is_back(health: RedisHealth) -> None:
    health.failed("leases", GONE)
    claim = asyncio.create_task(health.ready())
    await asyncio.sleep(0.01)
    assert not claim.done()
    health.worked("leases")
    async with asyncio.timeout(1):
        await claim


async def test_claims_that_fail_are_spread_out_but_tried(health: RedisHealth, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []

    async def pause(backoff: Backoff) -> None:
        waited.append(backoff.next())

    monkeypatch.setattr(health, "pause", pause)
    for _ in range(9):
        health.failed(CLAIMS, OutOfMemoryError("full"))
        await health.ready()
    assert len(waited) == 9
    assert 1 <= max(waited) <= 2
    health.worked(CLAIMS)
    await health.ready()
    assert len(waited) == 9


async def test_whoever_waits_goes_on_when_another_has_met_redis_again(health: RedisHealth) -> None:
    health.failed("leases", GONE)
    health.failed("results", GONE)
    waiting = asyncio.create_task(health.pause(Backoff(60, 60)))
    await asyncio.sleep(0.01)
    health.worked("results")
    async with asyncio.timeout(1):
        await waiting


@pytest.mark.parametrize(("away", "quiet"), [(1, True), (30, False)])
async def test_quiet_is_neither_a_young_process_nor_one_that_met_an_outage(
    health: RedisHealth, monkeypatch: pytest.MonkeyPatch, away: float, quiet: bool
) -> None:
    now = health._disturbed
    monkeypatch.setattr("worker.queue.health.time.monotonic", lambda: now)
    assert not health.quiet_for(10)
    now += 10
    assert health.quiet_for(10)
    health.failed("leases", GONE)
    now += away
    health.failed("leases", GONE)
    assert not health.quiet_for(10), "it is still away"
    health.worked("leases")
    assert health.quiet_for(10) is quiet
    now += 10
    assert health.quiet_for(10)


async def test_errors_are_reported_and_raised(health: RedisHealth, registry: CollectorRegistry) -> None:
    with pytest.raises(OutOfMemoryError), health.watch("results"):
        raise OutOfMemoryError("OOM")
    assert registry.get_sample_value("minedraft_redis_errors_total", {"kind": "full"}) == 1
    with pytest.raises(ZeroDivisionError), health.watch("results"):
        raise ZeroDivisionError
    assert registry.get_sample_value("minedraft_redis_up") == 0
    with health.watch("results"):
        pass
    assert registry.get_sample_value("minedraft_redis_up") == 1
