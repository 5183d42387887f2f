"""`producer.Client` against a real Redis."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from answering import answer_all, answer_shard
from client_rows import asynchronous, failing, gone, rows
from redis.asyncio import Redis

from producer import (
    Client,
    JobPaused,
    JobState,
    NoSuchJob,
    ProducerError,
    RedisUnavailable,
    Refused,
    Result,
    SyncClient,
)
from producer.record import consume
from producer.record.fetch import Order
from producer.record.submission import Submission


class TestSubmitting:
    async def test_rows_in_memory_are_the_lines_of_a_file(self, client: Client, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(40)))
        first = await client.submit(str(path))
        found = [await client.submit(given) for given in (path, [path], rows(40), iter(rows(40)), tuple(rows(40)))]
        found.append(await client.submit(asynchronous(rows(40))))
        assert {job.id for job in found} == {first.id}
        assert all(job.submitted and job.submitted.resumed for job in found)
        assert (await first.status()).name == "rows.jsonl"

    async def test_new_starts_another_job(self, client: Client) -> None:
        first, second = await client.submit(rows(3)), await client.submit(rows(3), new=True, name="again")
        assert first.id != second.id
        assert (await second.status()).name == "again"

    async def test_adding_to_a_job_by_name_can_be_typed_again_when_it_was_cut_short(self, client: Client) -> None:
        job = await client.submit(rows(20), name="grows")

        async def commit(*_: Any, **__: Any) -> str:
            raise asyncio.CancelledError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Submission, "commit", commit)
            patch.setattr(Submission, "BUFFERED_BYTES", 1000)
            with pytest.raises(asyncio.CancelledError):
                await client.submit(rows(40), append="grows")
        assert [each.state for each in await client.jobs()] == [JobState.QUEUED, JobState.SUBMITTING]
        again = await client.submit(rows(40), append="grows")
        assert again.submitted is not None
        assert (again.id, again.submitted.appended, again.submitted.rows) == (job.id, 20, 40)

    async def test_a_pattern_and_an_iterator_of_paths_are_files(self, client: Client, tmp_path: Path) -> None:
        for name in ("a.jsonl", "b.jsonl"):
            (tmp_path / name).write_text('{"prompt": "x"}\n')
        one = await client.submit(str(tmp_path / "*.jsonl"))
        other = await client.submit(tmp_path / name for name in ("a.jsonl", "b.jsonl"))
        assert (await one.status()).rows == 2
        assert other.id == one.id

    async def test_options_and_defaults_reach_the_job(self, client: Client, redis: Redis) -> None:
        job = await client.submit(
            rows(3), priority=7, max_error_rate=0.5, ttl=timedelta(days=1), defaults={"max_tokens": 5}, model="target"
        )
        stored = await redis.hgetall(f"minedraft:job:{job.id}")
        assert (stored["priority"], float(stored["max_error_rate"]), stored["ttl"]) == ("7", 0.5, "86400000")
        assert json.loads(stored["defaults"]) == {"max_tokens": 5}

    async def test_a_bad_row_is_a_row_error(self, client: Client, redis: Redis) -> None:
        job = await client.submit([*rows(2), {"custom_id": "bad", "prompt": ""}, {"no": "prompt"}])
        await answer_all(redis)
        found = {result.custom_id: result async for result in job.results()}
        assert len(found) == 4
        bad = found["bad"].error
        assert bad is not None
        assert (bad.code, bad.line) == ("empty_prompt", 3)
        assert not found["row-4"].ok

    async def test_a_surrogate_in_a_string_is_a_row_error_not_a_crash(self, client: Client) -> None:
        job = await client.submit([*rows(1), {"prompt": "\ud800"}])
        assert (await job.status()).invalid == 1

    @pytest.mark.parametrize("kind", ["list", "iterator", "asynchronous"])
    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"prompt": {1, 2}}, "row 301 cannot be written as JSON: Object of type set is not JSON serializable"),
            ({"temperature": float("nan")}, "row 301 cannot be written as JSON: Out of range float"),
            ("text", 'row 301 is of type str; a row is a dict, such as {"prompt": "..."}'),
        ],
    )
    async def test_what_is_no_json_is_refused_with_its_position(
        self, client: Client, redis: Redis, kind: str, bad: Any, message: str
    ) -> None:
        given = [*rows(300), bad, *rows(300, 300)]
        kinds: dict[str, Any] = {"list": given, "iterator": iter(given), "asynchronous": asynchronous(given)}
        with pytest.raises(Refused) as refused:
            await client.submit(kinds[kind])
        assert str(refused.value).startswith(message)
        assert await redis.keys("*job:*") == []

    @pytest.mark.parametrize("kind", ["list", "iterator", "asynchronous"])
    async def test_duplicates_are_refused_or_row_errors(self, client: Client, kind: str) -> None:
        given = [*rows(300), *rows(1), *rows(5000, 300)]
        kinds: dict[str, Any] = {"list": given, "iterator": iter(given), "asynchronous": asynchronous(given)}
        if kind == "list":
            job = await client.submit(given, on_duplicate="error-row")
            assert (await job.status()).failed == 1
        with pytest.raises(Refused, match=r"rows: custom_id 'r0' is on line 1 and again on line 301"):
            await client.submit(kinds[kind])

    @pytest.mark.parametrize(
        ("given", "options", "message"),
        [
            ([], {}, "rows: there are no rows in it"),
            ({"prompt": "x"}, {}, "one row alone is given; put it in a list"),
            (5, {}, "rows are expected, or files, not int"),
            (["/no/such/file"], {}, "/no/such/file"),
            (["a.jsonl", {"prompt": "x"}], {}, "files and rows are mixed; give either"),
            (rows(1), {"priority": 101}, "priority: 101 is not in -100 to 100"),
            (rows(1), {"max_error_rate": 2}, "max_error_rate: 2 is not in 0 to 1"),
            (rows(1), {"ttl": 0}, "ttl: 0 s would remove the job"),
            (rows(1), {"model": ""}, "model: a name is needed"),
            (rows(1), {"defaults": {"prompt": "x"}}, 'defaults: "prompt" cannot be a default'),
            (rows(1), {"defaults": {"stop": {1}}}, "defaults: they cannot be written as JSON"),
            (rows(1), {"append": "nothere"}, "there is no job 'nothere'"),
        ],
    )
    async def test_what_cannot_be_submitted_says_why(
        self, client: Client, given: Any, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises((ProducerError, OSError)) as refused:
            await client.submit(given, **options)
        assert message in str(refused.value)

    async def test_equal_rows_can_be_computed_once_and_rows_appended(self, client: Client, redis: Redis) -> None:
        given = [{"prompt": "same"} for _ in range(20)]
        job = await client.submit(given, dedupe=True)
        assert job.submitted is not None
        assert job.submitted.copies == 19
        first = await client.submit(rows(5), name="grows")
        await answer_all(redis)
        more = await client.submit(rows(8), append="grows")
        assert more.id == first.id
        assert (await more.status()).rows == 8

    async def test_a_cancelled_submission_of_a_stream_leaves_no_job(self, client: Client, redis: Redis) -> None:
        started = asyncio.Event()

        async def endless() -> AsyncIterator[dict[str, Any]]:
            for number in range(10**9):
                yield {"prompt": f"p{number}"}
                if number == 2000:
                    started.set()
                    await asyncio.sleep(3600)

        running = asyncio.create_task(client.submit(endless()))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await client.jobs() == []
        await gone("producer-feed")

    async def test_an_error_in_the_stream_is_the_callers_own(self, client: Client, redis: Redis) -> None:
        async def broken() -> AsyncIterator[dict[str, Any]]:
            for row in rows(1000):
                yield row
            raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match="mine"):
            await client.submit(broken())
        assert await client.jobs() == []


class TestResults:
    async def test_they_come_as_rows_end(self, client: Client, redis: Redis) -> None:
        job = await client.submit(rows(40))
        stream = job.results()
        await answer_shard(redis)
        first = await asyncio.wait_for(anext(stream), 5)
        assert not (await job.status()).state.ended
        assert first.ok
        assert first.text == f"re: {first.custom_id}"
        assert first.usage["total_tokens"] == 5
        await answer_all(redis)
        others = [result async for result in stream]
        assert sorted([first.custom_id, *(result.custom_id for result in others)]) == sorted(  # type: ignore[type-var]
            f"r{index}" for index in range(40)
        )

    async def test_input_order_waits_for_the_end(self, client: Client, redis: Redis) -> None:
        job = await client.submit(rows(20))
        reading = asyncio.create_task(_all(job.results(order="input")))
        await answer_shard(redis)
        await asyncio.sleep(0.3)
        assert not reading.done()
        await answer_all(redis)
        assert [result.custom_id for result in await reading] == [f"r{index}" for index in range(20)]

    async def test_without_follow_what_is_there(self, client: Client, redis: Redis) -> None:
        job = await client.submit(rows(40))
        assert await _all(job.results(follow=False)) == []
        count = await answer_shard(redis)
        assert len(await _all(job.results(follow=False, order="input"))) == count > 0

    async def test_failed_rows_are_results(self, client: Client, redis: Redis) -> None:
        job = await client.submit(failing(3))
        await answer_all(redis)
        result = (await _all(job.results(order="input")))[1]
        assert (result.ok, result.text, result.texts, result.response, result.usage) == (False, "", (), None, {})
        assert result.error is not None
        assert (result.error.code, result.error.message, result.error.line) == ("made_up", "it had to fail", 2)

    async def test_a_job_that_pauses_itself_ends_the_waiting(self, client: Client, redis: Redis) -> None:
        job = await client.submit(failing(200), max_error_rate=0.1)
        while (await job.status()).state is not JobState.PAUSED:
            assert await answer_shard(redis)
        stream, given = job.results(), 0
        with pytest.raises(JobPaused, match=f"paused itself.*`producer resume {job.id}`"):  # noqa: PT012
            async for _ in stream:
                given += 1
        assert given == (await job.status()).done
        with pytest.raises(JobPaused):
            await job.wait()

    async def test_rows_that_are_retried_meanwhile_are_noticed(self, client: Client, redis: Redis) -> None:
        job = await client.submit([*failing(16), *rows(16, 16)])
        await answer_shard(redis)
        stream = job.results()
        await anext(stream)
        await job.retry()
        with pytest.raises(Refused, match="read them again"):
            await _all(stream)

    @pytest.mark.parametrize("order", ["done", "input"])
    @pytest.mark.parametrize("follow", [True, False])
    async def test_of_a_job_that_is_partly_consumed_the_rest(
        self, client: Client, sync: SyncClient, redis: Redis, order: Order, *, follow: bool
    ) -> None:
        job = await client.submit(rows(300))
        await answer_shard(redis)
        gone = await consume.take(redis, job.id)
        assert gone is not None
        assert await consume.trim(redis, job.id, gone)
        await answer_all(redis)
        left = {f"r{index}" for index in range(300)} - {json.loads(line)["custom_id"] for line in gone.lines}
        assert 0 < len(left) < 300
        found = await _all(job.results(order=order, follow=follow))
        assert len(found) == len(left)
        assert {result.custom_id for result in found} == left
        assert list(sync.job(job.id).results(order=order, follow=follow)) == found

    async def test_what_is_consumed_while_it_is_read_is_noticed(self, client: Client, redis: Redis) -> None:
        job = await client.submit(rows(300))
        await answer_shard(redis)
        stream = job.results()
        await anext(stream)
        await answer_all(redis)
        for _ in range(2):
            gone = await consume.take(redis, job.id)
            assert gone is not None
            assert await consume.trim(redis, job.id, gone)
        with pytest.raises(Refused, match="read them again"):
            await _all(stream)

    async def test_a_job_that_is_purged_meanwhile_is_no_such_job(self, client: Client) -> None:
        job = await client.submit(rows(2))
        waiting = asyncio.create_task(job.wait())
        await job.cancel()
        assert (await waiting).state is JobState.CANCELLED
        await job.purge()
        with pytest.raises(NoSuchJob):
            await _all(job.results())
        with pytest.raises(NoSuchJob):
            await job.status()


class TestSteering:
    async def test_a_job_is_found_by_id_and_by_name(self, client: Client) -> None:
        job = await client.submit(rows(2), name="mine")
        assert (await client.job(job.id)).id == (await client.job("mine")).id == job.id
        assert [status.job_id for status in await client.jobs()] == [job.id]
        with pytest.raises(NoSuchJob, match="there is no job 'other'"):
            await client.job("other")

    async def test_what_can_be_done_depends_on_the_state(self, client: Client, redis: Redis) -> None:
        job = await client.submit(failing(3))
        with pytest.raises(Refused, match=f"job {job.id} is not paused but queued"):
            await job.resume()
        assert (await job.pause()).state is JobState.PAUSED
        with pytest.raises(Refused, match="is paused already"):
            await job.pause()
        assert (await job.resume()).state is JobState.QUEUED
        with pytest.raises(Refused, match="none has failed"):
            await job.retry()
        with pytest.raises(Refused, match="`producer cancel"):
            await job.purge()
        refused = await client.submit([{"prompt": "x"}, {"no": "prompt"}])
        await answer_all(redis)
        with pytest.raises(Refused, match=f"refused at submission; `producer errors {refused.id}` says why"):
            await refused.retry()
        assert await job.retry() == 3
        assert (await job.cancel()).state is JobState.CANCELLED
        with pytest.raises(Refused, match="is cancelled already"):
            await job.cancel()

    async def test_progress_ends_with_the_end(self, client: Client, redis: Redis) -> None:
        job = await client.submit(rows(40))
        seen = []
        async for status in job.progress(every=0.05):
            seen.append(status)
            await answer_shard(redis)
        assert seen[0].done == 0
        assert (seen[-1].state, seen[-1].done) == (JobState.COMPLETED, 40)
        assert [status.done for status in seen] == sorted(status.done for status in seen)

    async def test_waiting_has_a_limit(self, client: Client) -> None:
        job = await client.submit(rows(2))
        with pytest.raises(TimeoutError):
            await job.wait(timeout=0.3)


class TestRedis:
    async def test_one_that_is_not_there_is_said_plainly(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(RedisUnavailable, match=r"Redis at unix://.*cannot be reached"):
            async with Client(f"unix://{tmp_path}/none.sock"):
                pass
        monkeypatch.setenv("MINEDRAFT_DATA_DIR", str(tmp_path))
        monkeypatch.delenv("MINEDRAFT_REDIS_URL", raising=False)
        with pytest.raises(RedisUnavailable, match="producer redis start"):
            SyncClient()

    async def test_the_url_comes_from_the_environment(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MINEDRAFT_REDIS_URL", redis_url)
        async with Client() as client:
            assert await client.jobs() == []

    async def test_a_client_that_is_not_open_says_so(self) -> None:
        with pytest.raises(RuntimeError, match="async with"):
            await Client("redis://nowhere").jobs()


async def _all(stream: AsyncIterator[Result]) -> list[Result]:
    return [result async for result in stream]
