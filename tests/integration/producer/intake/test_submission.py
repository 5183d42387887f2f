"""A submission and the record agree on its rows, or there is no job."""

import io
from typing import Any

import pytest
from redis.asyncio import Redis

from producer.intake.submission import submit_lines
from producer.record.connection import connect
from producer.record.jobs import Submission, SubmissionLost
from producer.record.keys import key
from producer.record.models import Outcome, RowFault


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
    await submit_lines(redis, io.BytesIO(lines), model="target", name="test", new=False)
