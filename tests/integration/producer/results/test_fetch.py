"""Files of results against a real Redis: counted, and refused when the record does not add up or moves."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from record_jobs import claimed, stats, submitted
from redis.asyncio import Redis

from producer.errors import Refused
from producer.record import consume, control, fetch, leases
from producer.record.connection import connect
from producer.record.keys import key
from producer.record.models import SHARD_ROWS, Answer, Outcome, RowFault
from producer.results import fetch as results
from producer.results.fetch import RowsMissing
from producer.results.formats import Format
from producer.results.sinks import Wanted

ROWS = 3 * SHARD_ROWS


async def answer(redis: Redis, *, fail: int = 0) -> None:
    """End the rows of the next shard, the first `fail` of them with an error."""
    claim = await claimed(redis)
    ends = [
        Outcome.failed_row(row.index, row.line, row.custom_id, RowFault("no", "no"))
        if at < fail
        else Outcome.answered(row, Answer({"choices": [{"text": row.custom_id}]}, 1, 1))
        for at, row in enumerate(claim.rows)
    ]
    assert await leases.finish(redis, [(claim.lease, ends)]) == [len(ends)]


async def ended(redis: Redis) -> str:
    """A job that has ended, 5 of its rows with an error."""
    job = await submitted(redis, ROWS - 2, refused=2)
    for fail in (0, 3, 0):
        await answer(redis, fail=fail)
    return job


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def there(folder: Path) -> dict[str, str]:
    """All files, and what is in them."""
    return {path.name: path.read_text() for path in folder.iterdir()}


async def test_files_of_one_job_add_up(redis_url: str, tmp_path: Path) -> None:
    async with connect(redis_url) as redis:
        job = await ended(redis)
        stream = io.BytesIO()
        await results.fetch(redis, job, Wanted(stream), order="done")
        for order in ("input", "done"):
            wanted = Wanted(tmp_path / f"{order}.jsonl", tmp_path / f"{order}.errors.jsonl")
            done = await results.fetch(redis, job, wanted, order=order)  # type: ignore[arg-type]
            assert (done.tally.lines, done.tally.failed, done.tally.codes) == (ROWS, 5, {"no": 3, "bad": 2})
        await results.fetch(redis, job, Wanted(tmp_path / "t.parquet", manifest=False), order="done")
    whole = [json.loads(line) for line in stream.getvalue().splitlines()]
    for order in ("input", "done"):
        good, bad = read(tmp_path / f"{order}.jsonl"), read(tmp_path / f"{order}.errors.jsonl")
        assert (len(good), len(bad)) == (ROWS - 5, 5)
        assert sorted([*good, *bad], key=str) == sorted(whole, key=str)
    assert [line for line in whole if not line["error"]] == read(tmp_path / "done.jsonl")
    assert [int(line["custom_id"][1:]) for line in read(tmp_path / "input.jsonl")] == sorted(
        int(line["custom_id"][1:]) for line in whole if not line["error"]
    )
    table = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["custom_id"] for row in table] == [line["custom_id"] for line in whole]
    assert [row["response"] and json.loads(row["response"]) for row in table] == [line["response"] for line in whole]
    assert not (tmp_path / "t.parquet.manifest.json").exists()


async def test_a_job_that_has_not_ended_is_read_only_when_that_is_said(redis_url: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    async with connect(redis_url) as redis:
        job = await submitted(redis, ROWS)
        await answer(redis)
        with pytest.raises(
            Refused, match=rf"queued|running, {SHARD_ROWS} of its {ROWS} rows .* `--partial` .* `--follow`"
        ):
            await results.fetch(redis, job, Wanted(path), order="done")
        assert there(tmp_path) == {}
        done = await results.fetch(redis, job, Wanted(path), order="input", partial=True)
    assert (done.tally.lines, len(read(path))) == (SHARD_ROWS, SHARD_ROWS)
    assert json.loads((tmp_path / "out.jsonl.manifest.json").read_text())["job"]["state"] == "running"


@pytest.mark.parametrize("order", ["input", "done"])
async def test_a_result_that_is_missing_is_no_file(redis_url: str, tmp_path: Path, order: fetch.Order) -> None:
    (tmp_path / "out.jsonl").write_text("old")
    async with connect(redis_url) as redis:
        job = await ended(redis)
        await redis.hdel(key("results", job), "7")
        wanted = Wanted(tmp_path / "out.jsonl", tmp_path / "errors.jsonl")
        with pytest.raises(RowsMissing, match=f"has {ROWS - 1} results where {ROWS} rows have ended: 1 are missing"):
            await results.fetch(redis, job, wanted, order=order)
        assert there(tmp_path) == {"out.jsonl": "old"}
        done = await results.fetch(redis, job, wanted, order=order, partial=True)
    assert done.tally.lines == ROWS - 1


@pytest.mark.parametrize("order", ["input", "done"])
@pytest.mark.parametrize("how", ["retry", "consume"])
async def test_a_job_that_changes_meanwhile_is_no_file(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: fetch.Order, how: str
) -> None:
    monkeypatch.setattr(fetch, "_ROWS", 5)
    async with connect(redis_url) as redis:
        job = await ended(redis)
        real, calls = fetch.page, 0

        async def meddled(*arguments: Any, **more: Any) -> fetch.Page | None:
            nonlocal calls
            calls += 1
            if calls == 6 and how == "retry":
                assert await control.retry(redis, job) == 3
                await answer(redis)
            if calls == 6 and how == "consume":
                batch = await consume.take(redis, job)
                assert batch is not None
                await consume.trim(redis, job, batch)
            return await real(*arguments, **more)

        monkeypatch.setattr(fetch, "page", meddled)
        with pytest.raises(Refused, match="run the same command again"):
            await results.fetch(redis, job, Wanted(tmp_path / "out.jsonl"), order=order)
        assert there(tmp_path) == {}
        if how == "retry":
            assert (await stats(redis, job)).done == ROWS
            done = await results.fetch(redis, job, Wanted(tmp_path / "out.jsonl"), order=order)
            assert (done.tally.lines, done.tally.failed) == (ROWS, 2)


async def test_a_cancelled_job_has_what_was_done(redis_url: str, tmp_path: Path) -> None:
    async with connect(redis_url) as redis:
        job = await submitted(redis, ROWS)
        await answer(redis)
        assert await control.cancel(redis, job)
        done = await results.fetch(redis, job, Wanted(tmp_path / "out.jsonl"), order="done")
    assert (done.tally.lines, done.job.rows) == (SHARD_ROWS, ROWS)


async def test_what_cannot_be_is_refused(redis_url: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    async with connect(redis_url) as redis:
        job = await ended(redis)
        for wanted, words in (
            (Wanted(path, tmp_path / "." / "out.jsonl"), "the results go there already"),
            (Wanted(io.BytesIO(), format=Format.PARQUET), "Parquet needs a file"),
        ):
            with pytest.raises(Refused, match=words):
                await results.fetch(redis, job, wanted, order="done")
        with pytest.raises(Refused, match="no job"):
            await results.fetch(redis, "nosuch", Wanted(path), order="done")
    assert there(tmp_path) == {}
