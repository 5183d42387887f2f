"""`results --follow` and `watch` while Redis goes away and comes back."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from answering import answer_all
from record_jobs import submitted
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from producer.cli import watch
from producer.cli.fetching import Asked, write_results
from producer.record import jobs, outage, provenance
from producer.record.connection import connect

ROWS = 40


@pytest.fixture
async def job(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """One that has ended."""
    monkeypatch.setattr(outage, "_SOON_SECONDS", 0.01)
    async with connect(redis_url) as redis:
        job = await submitted(redis, ROWS)
        await answer_all(redis)
    return job


def away(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Let Redis be away the first time that this is asked."""
    real: Callable[..., Awaitable[Any]] = getattr(module, name)
    asked = 0

    async def ask(redis: Redis, job_id: str) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            meanwhile()
            raise RedisConnectionError("gone")
        return await real(redis, job_id)

    monkeypatch.setattr(module, name, ask)


async def test_the_whole_of_a_job_that_has_ended_is_waited_for(
    redis_url: str, job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away(monkeypatch, provenance, "engines")
    async with connect(redis_url) as redis:
        assert await watch.follow(redis, job, as_json=True) == 0
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1])["done"] == ROWS
    assert "Redis is away, waiting for it" in said.err


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
@pytest.mark.parametrize("asked", [(jobs, "asked"), (provenance, "engines")], ids=str)
async def test_what_the_manifest_says_is_waited_for_before_the_file_is_there(
    redis_url: str, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, asked: tuple[Any, str]
) -> None:
    def there() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    seen: set[str] = set()
    away(monkeypatch, *asked, lambda: seen.update(there()))
    following = Asked(job, str(tmp_path / name), None, None, "done", False, True, False, True, False)
    assert await write_results(following, redis_url) == 0
    assert f"{name}.part" in seen
    assert name not in seen
    assert there() == {name, f"{name}.manifest.json"}
    assert json.loads((tmp_path / f"{name}.manifest.json").read_text())["files"][0]["lines"] == ROWS
