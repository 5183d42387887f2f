"""Which servers may keep a dataset."""

import logging
from typing import Any

import pytest
from redis.exceptions import BusyLoadingError, NoPermissionError, ResponseError

from worker.queue import preflight
from worker.queue.preflight import UnfitRedis

GOOD = {"redis_version": "7.0.15", "role": "master", "maxmemory_policy": "noeviction", "aof_enabled": 1}


class Server:
    """Says of itself what it is told to."""

    def __init__(self, info: dict[str, Any], *, allowed: bool = True) -> None:
        self._info, self._allowed = info, allowed

    async def ping(self) -> None:
        return

    async def info(self) -> dict[str, Any]:
        return self._info

    async def dbsize(self) -> int:
        if not self._allowed:
            raise NoPermissionError("this user has no permissions to run the 'dbsize' command")
        return 0

    async def delete(self, _: str) -> None:
        return


@pytest.fixture(autouse=True)
def _no_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    async def living(_: object) -> list[object]:
        return []

    async def retire(_: object, __: str) -> None:
        return

    monkeypatch.setattr(preflight.fleet, "living", living)
    monkeypatch.setattr(preflight.fleet, "retire", retire)


@pytest.mark.parametrize("extra", [{}, {"redis_version": "6.2.0"}, {"redis_version": "8.2.3"}])
async def test_a_good_one(extra: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    await preflight.check(Server(GOOD | extra))  # type: ignore[arg-type]
    assert not caplog.records


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ({"redis_version": "6.0.16"}, "too old"),
        ({"maxmemory_policy": "allkeys-lru"}, "noeviction"),
        ({"maxmemory_policy": "volatile-ttl"}, "noeviction"),
        ({"role": "slave"}, "replica"),
        ({"cluster_enabled": 1}, "Cluster"),
    ],
)
async def test_an_unfit_one_is_refused(extra: dict[str, Any], word: str) -> None:
    with pytest.raises(UnfitRedis, match=word):
        await preflight.check(Server(GOOD | extra))  # type: ignore[arg-type]


async def test_a_user_without_rights_is_refused() -> None:
    with pytest.raises(UnfitRedis, match="dbsize"):
        await preflight.check(Server(GOOD, allowed=False))  # type: ignore[arg-type]


async def test_one_that_forgets_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await preflight.check(Server(GOOD | {"aof_enabled": 0}))  # type: ignore[arg-type]
    assert "append-only" in caplog.text


async def test_one_whose_disk_failed_it_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await preflight.check(Server(GOOD | {"aof_last_write_status": "err"}))  # type: ignore[arg-type]
    assert "disk" in caplog.text


@pytest.mark.parametrize("words", ["MISCONF Errors writing", "-OOM command not allowed when used memory"])
async def test_trouble_that_passes_does_not_keep_a_worker_from_starting(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def retire(_: object, __: str) -> None:
        raise ResponseError(words)

    monkeypatch.setattr(preflight.fleet, "retire", retire)
    await preflight.check(Server(GOOD))  # type: ignore[arg-type]


async def test_one_that_loads_its_data_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Server(GOOD)
    asked = 0

    async def ping() -> None:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise BusyLoadingError("Redis is loading the dataset in memory")

    monkeypatch.setattr(loads, "ping", ping)
    await preflight.check(loads)  # type: ignore[arg-type]
    assert asked == 3
    asked = 0
    monkeypatch.setattr(preflight, "LOAD_SECONDS", 0.0)
    with pytest.raises(BusyLoadingError):
        await preflight.check(loads)  # type: ignore[arg-type]
