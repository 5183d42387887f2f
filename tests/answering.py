"""A worker in a few lines, for tests that need rows to end: it claims them from a real Redis and makes up answers."""

from collections.abc import Callable
from typing import Any

from record_jobs import LEASE_MS
from redis.asyncio import Redis

from producer.record import leases
from producer.record.models import Answer, Outcome, Row, RowFault


def echo(row: Row) -> Outcome:
    """An answer whose text is the row's name; an error where the row asks for it."""
    if row.body.get("user") == "fail":
        return Outcome.failed_row(row.index, row.line, row.custom_id, RowFault("made_up", "it had to fail"))
    choice = {"index": 0, "message": {"role": "assistant", "content": f"re: {row.custom_id}"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    body: dict[str, Any] = {"object": "chat.completion", "model": "target", "choices": [choice], "usage": usage}
    return Outcome.answered(row, Answer(body, prompt_tokens=3, completion_tokens=2))


async def answer_shard(redis: Redis, outcome: Callable[[Row], Outcome] = echo) -> int:
    """End every row of the next shard; how many they were, 0 where nothing can be claimed."""
    claim = await leases.claim(redis, served="target", lease_ms=LEASE_MS)
    if claim is None:
        return 0
    await leases.finish(redis, [(claim.lease, [outcome(row) for row in claim.rows])])
    return len(claim.rows)


async def answer_all(redis: Redis, outcome: Callable[[Row], Outcome] = echo) -> int:
    """End every row that can be claimed; how many they were."""
    total = 0
    while count := await answer_shard(redis, outcome):
        total += count
    return total
