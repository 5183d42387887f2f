"""What a job asks for on behalf of its rows: stored once, in every row that is claimed, part of what the job is."""

import json
from typing import Any

import pytest
from given_lines import GivenLines
from record_jobs import claimed, expire
from redis.asyncio import Redis

from producer.intake.submission import Submitted, submit_lines
from producer.record.keys import key

TEMPLATE = "{{ messages[0].content }}" * 100
LINES = b"""
{"messages": [{"role": "user", "content": "a"}]}
{"messages": [{"role": "user", "content": "b"}], "temperature": 1, "chat_template": null}
{"method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "c"}]}}
"""


async def submit(redis: Redis, defaults: dict[str, Any] | None) -> Submitted:
    return await submit_lines(redis, GivenLines(LINES), model="target", name="test", new=False, defaults=defaults)


async def test_a_row_has_its_jobs_defaults_where_it_says_nothing_itself(redis: Redis) -> None:
    job = await submit(redis, {"temperature": 0, "chat_template": TEMPLATE})
    claim = await claimed(redis)
    asked = [(row.body["temperature"], row.body["chat_template"]) for row in claim.rows]
    assert asked == [(0, TEMPLATE), (1, None), (0, TEMPLATE)]
    assert [row.body["messages"][0]["content"] for row in claim.rows] == ["a", "b", "c"]
    stored = await redis.hgetall(key("rows", job.job_id, 0))
    assert not any(TEMPLATE in text for text in stored.values())
    await expire(redis)  # another worker is told the same
    assert (await claimed(redis)).rows == claim.rows


async def test_the_same_rows_with_the_same_defaults_are_the_same_job(redis: Redis) -> None:
    first = await submit(redis, {"temperature": 0, "seed": 1})
    again = await submit(redis, {"seed": 1, "temperature": 0})
    others = [await submit(redis, defaults) for defaults in (None, {"temperature": 0}, {"temperature": 0, "seed": 2})]
    assert again.job_id == first.job_id
    assert again.resumed
    assert len({first.job_id, *(other.job_id for other in others)}) == 4
    assert (await submit(redis, {})).job_id == others[0].job_id  # none are no defaults


@pytest.mark.parametrize("damage", ["{", "[1]", json.dumps("x")])
async def test_rows_of_a_job_whose_defaults_are_damaged_are_errors(redis: Redis, damage: str) -> None:
    """Answered without them they would be answers to other questions."""
    job = await submit(redis, {"temperature": 0})
    await redis.hset(key("job", job.job_id), "defaults", damage)
    claim = await claimed(redis)
    assert claim.rows == []
    assert len(claim.hopeless) == 3


async def test_a_job_from_before_there_were_defaults_has_none(redis: Redis) -> None:
    job = await submit(redis, None)
    await redis.hdel(key("job", job.job_id), "defaults")
    assert "temperature" not in (await claimed(redis)).rows[0].body
