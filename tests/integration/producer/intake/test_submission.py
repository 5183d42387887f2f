"""A submission and the record agree on its rows, or there is no job."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from given_lines import GivenLines
from redis.asyncio import Redis

from producer.intake.lines import Line, TooLong
from producer.intake.submission import DuplicateIds, submit_lines
from producer.record import fetch
from producer.record.connection import connect
from producer.record.keys import key
from producer.record.models import Outcome, RowFault
from producer.record.submission import Submission, SubmissionLost


@pytest.mark.parametrize("lost", ["rows", "calls"])
async def test_a_record_that_went_back_is_no_job(redis_url: str, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    monkeypatch.setattr(Submission, "BUFFERED_BYTES", 1)  # every row is sent at once
    commit = Submission.commit

    async def after_a_failover(staged: Submission, *args: Any, **kwargs: Any) -> str:
        await staged.redis.hincrby(key("job", staged.job_id), lost, -1)
        if lost == "calls":  # noticed by the next rows already
            await staged.refuse(Outcome.failed_row(staged.rows, 1, None, RowFault("bad", "bad")))
        return await commit(staged, *args, **kwargs)

    monkeypatch.setattr(Submission, "commit", after_a_failover)
    async with connect(redis_url) as redis:
        with pytest.raises(SubmissionLost, match=r"older state and lost rows of job \w+: submit it again"):
            await submit(redis)
        assert await redis.keys() == []


async def submit(redis: Redis) -> None:
    lines = b'{"prompt": "x"}\n' * 39 + b"{broken\n"
    await submit_lines(redis, GivenLines(lines, reopens=False), model="target", name="test", new=False)


async def test_rows_with_a_name_that_was_there_are_error_rows_where_that_is_wanted(redis_url: str) -> None:
    lines = b"\n".join(b'{"custom_id": "%d", "prompt": "x"}' % (number % 30) for number in range(40))
    async with connect(redis_url) as redis:
        with pytest.raises(DuplicateIds, match="custom_id '0' is on line 1 and again on line 31"):
            await submit_lines(redis, GivenLines(lines), model="target", name="test")
        assert await redis.keys() == []
        done = await submit_lines(redis, GivenLines(lines), model="target", name="test", on_duplicate="error-row")
        assert (done.rows, done.invalid) == (40, 10)
        found = [json.loads(line) async for line in fetch.results(redis, done.job_id, order="input")]
    assert [line["custom_id"] for line in found] == [str(number) for number in range(10)]
    assert found[3]["error"] == {
        "code": "duplicate_custom_id",
        "message": "custom_id '3' is on line 4 already",
        "line": 34,
    }


class Counted(GivenLines):
    """Knows how many lines of it are read."""

    count = 0

    def lines(self) -> Iterator[Line | TooLong]:
        for self.count, line in enumerate(super().lines(), 1):
            yield line


@pytest.mark.parametrize("case", ["new", "append", "continued"])
async def test_others_get_their_turn_while_it_reads(redis_url: str, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Also where rows are staged already, and nothing is sent for long."""
    many = 3000
    source = Counted(b"\n".join(b'{"prompt": "%d"}' % number for number in range(many)))
    asked: dict[str, Any] = {"model": "target", "name": "test"}
    async with connect(redis_url) as redis:
        if case == "append":
            asked["append"] = (await submit_lines(redis, source, **asked)).job_id
        elif case == "continued":
            monkeypatch.setattr(Submission, "BUFFERED_BYTES", 1000)

            async def commit(*_: Any, **__: Any) -> str:
                raise asyncio.CancelledError

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Submission, "commit", commit)
                with pytest.raises(asyncio.CancelledError):
                    await submit_lines(redis, source, **asked)
        source.count, seen = 0, set()

        async def look() -> None:
            while True:
                seen.add(source.count)
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        done = await submit_lines(redis, source, **asked)
        looking.cancel()
    assert (done.resumed, done.continued > many - 100) == (case == "append", case == "continued")
    assert len(seen) > many // 256
