"""`producer.SyncClient` against a real Redis."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from answering import answer_all
from client_rows import gone, rows
from redis.asyncio import Redis

from producer import (
    JobState,
    NoSuchJob,
    Refused,
    SyncClient,
)


class TestSync:
    """These tests run within an event loop, as a notebook's cells do."""

    async def test_all_of_it_without_await(self, sync: SyncClient, redis: Redis) -> None:
        job = sync.submit(rows(40), name="sync")
        assert job.submitted is not None
        assert not job.submitted.resumed
        stream = job.results()
        await answer_all(redis)
        assert {result.text for result in stream} == {f"re: r{index}" for index in range(40)}
        assert job.wait(timeout=5).done == 40
        assert [status.state for status in job.progress()] == [JobState.COMPLETED]
        assert sync.job("sync").id == job.id == sync.jobs()[0].job_id
        assert len(list(job.results(order="input", follow=False))) == 40
        job.purge()
        with pytest.raises(NoSuchJob):
            job.status()

    async def test_an_iterator_runs_in_the_calling_thread(self, sync: SyncClient) -> None:
        threads = set()

        def mine() -> Iterator[dict[str, Any]]:
            for row in rows(2000):
                threads.add(threading.current_thread())
                yield row

        assert sync.submit(mine()).status().rows == 2000
        assert threads == {threading.current_thread()}

    async def test_the_results_of_one_job_are_the_rows_of_another(self, sync: SyncClient, redis: Redis) -> None:
        first = sync.submit(rows(600))
        await answer_all(redis)
        second = sync.submit({"prompt": result.text} for result in first.results())
        assert second.status().rows == 600

    async def test_an_error_in_an_iterator_is_the_callers_own(self, sync: SyncClient) -> None:
        def broken() -> Iterator[dict[str, Any]]:
            yield from rows(1000)
            raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match="mine"):
            sync.submit(broken())
        with pytest.raises(Refused, match=r"row 1 is of type int"):
            sync.submit(iter([1]))  # type: ignore[arg-type]
        assert sync.jobs() == []

    async def test_results_that_are_left_early_are_closed(self, sync: SyncClient, redis: Redis) -> None:
        job = sync.submit(rows(40))
        await answer_all(redis)
        for _ in job.results():
            break
        assert job.status().done == 40

    async def test_a_closed_client_says_so(self, redis_url: str) -> None:
        client = SyncClient(redis_url)
        job = client.submit(rows(1))
        client.close()
        client.close()
        with pytest.raises(RuntimeError, match="the client is closed"):
            job.status()
        await gone("producer-client")
