"""The audit finds every kind of damage: a sound job is hurt in one way at a time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from chaos.storm.audit import Audit, Job, audit
from chaos.storm.oracle import Asked, fake_oracle, read_input
from chaos.storm.purged import audit_purge, snapshot
from chaos.storm.rows import FAIL_WORD, write_job
from redis import Redis

ROWS = 60
ORACLE = fake_oracle(FAIL_WORD, 12)

Results = list[dict[str, Any]]


def _result(row: Asked) -> dict[str, Any]:
    text = ORACLE(row) if row.body is not None else None
    if text is None:
        code = "refused" if row.body is None else "fake_failure"
        error = {"code": code, "message": "no", "line": row.line}
        return {"id": "x", "custom_id": row.custom_id, "response": None, "error": error}
    choice = {"message": {"content": text}} if "chat" in row.url else {"text": text}
    body = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    return {"id": "x", "custom_id": row.custom_id, "response": {"status_code": 200, "body": body}, "error": None}


class Sound:
    """A job that is as it should be."""

    def __init__(self, redis: "Redis", folder: Path) -> None:
        self.redis = redis
        self.input = folder / "job.jsonl"
        write_job(self.input, 4, ROWS)
        self.extra = '{"custom_id": "bad", "q": 1}\n[1]\n' + json.dumps({"prompt": FAIL_WORD}) + "\n"
        self.input.write_text(self.input.read_text() + self.extra)
        asked = list(read_input(self.input))
        self.results = [_result(row) for row in asked]
        answered = sum(result["error"] is None for result in self.results)
        redis.hset(
            "minedraft:job:a",
            mapping={
                "state": "completed",
                "rows": len(asked),
                "done": len(asked),
                "failed": len(asked) - answered,
                "invalid": sum(row.body is None for row in asked),
                "consumed": 0,
                "prompt_tokens": 3 * answered,
                "completion_tokens": 2 * answered,
            },
        )
        redis.zadd("minedraft:jobs", {"a": 1})
        redis.rpush("minedraft:job:a:finished", *range(len(asked)))

    def audit(self, how: Literal["input", "done", "consume"] = "input", *, cancelled: bool = False) -> Audit:
        path = self.input.with_suffix(".results")
        path.write_text("".join(json.dumps(result) + "\n" for result in self.results))
        return audit(self.redis, [Job("a", self.input, path, how, cancelled)], ORACLE)

    def end_in_another_order(self) -> None:
        """The last row ended first."""
        self.results.insert(0, self.results.pop())
        self.redis.rpoplpush("minedraft:job:a:finished", "minedraft:job:a:finished")

    def consume(self) -> None:
        """All results are in the file and not in Redis."""
        self.redis.hset("minedraft:job:a", "consumed", len(self.results))
        self.redis.delete("minedraft:job:a:finished")

    def cancel(self, rows: int) -> None:
        """The last rows were dropped; their share of the counters with them."""
        dropped = [self.results.pop() for _ in range(rows)]
        self.redis.hset("minedraft:job:a", "state", "cancelled")
        self.redis.ltrim("minedraft:job:a:finished", 0, len(self.results) - 1)
        answered = sum(result["error"] is None for result in dropped)
        fewer = {"done": rows, "failed": rows - answered}
        fewer |= {"prompt_tokens": 3 * answered, "completion_tokens": 2 * answered}
        for name, count in fewer.items():
            self.redis.hincrby("minedraft:job:a", name, -count)


@pytest.fixture
def sound(redis_url: str, tmp_path: Path) -> Sound:
    return Sound(Redis.from_url(redis_url, decode_responses=True), tmp_path)


def test_nothing_is_found_in_a_sound_job(sound: Sound) -> None:
    found = sound.audit()
    assert found.findings == []
    assert found.rows == found.results + found.errors == ROWS + 3
    assert found.refused >= 2


def _answered(results: Results) -> dict[str, Any]:
    return next(result for result in results if result["error"] is None)


def _say(results: Results, **body: Any) -> None:
    _answered(results)["response"]["body"] |= body


def _fail(results: Results) -> None:
    _answered(results).update(response=None, error={"code": "engine_killer", "message": "", "line": 1})


def _swap(results: Results) -> None:
    results[0], results[1] = results[1], results[0]


@pytest.mark.parametrize(
    ("damage", "counters"),
    [
        (lambda results: results.pop(5), {"lost": 1}),
        (lambda results: results.append(results[5]), {"doubled": 1}),
        (lambda results: results.append(results[5] | {"custom_id": "a stranger"}), {"wrong": 1}),
        (lambda results: _say(results, choices=[{"text": "amber"}]), {"wrong": 1}),
        (lambda results: _say(results, usage={"prompt_tokens": 3, "completion_tokens": 1}), {"counters": 1}),
        (_fail, {"wrong": 1}),
        (_swap, {"wrong": 1}),
        (lambda results: results[-1].update(error=results[-1]["error"] | {"line": 1}), {"wrong": 1}),
        (lambda results: results[-3].update(error=None), {"wrong": 1}),
    ],
)
def test_damage_in_the_results(sound: Sound, damage: Callable[[Results], Any], counters: dict[str, int]) -> None:
    damage(sound.results)
    found = sound.audit()
    assert {name: getattr(found, name) for name in counters} == counters
    assert not found.clean


@pytest.mark.parametrize("name", ["rows", "done", "failed", "invalid", "prompt_tokens", "completion_tokens"])
def test_a_counter_that_is_off_by_one(sound: Sound, name: str) -> None:
    sound.redis.hincrby("minedraft:job:a", name, 1)
    assert f"job a: {name} is" in "".join(sound.audit().findings)


def test_a_row_that_ended_twice(sound: Sound) -> None:
    sound.redis.rpush("minedraft:job:a:finished", 7)
    assert sound.audit().counters == 1


@pytest.mark.parametrize(
    "key",
    ["minedraft:job:a:rows:3", "minedraft:job:a:epochs", "minedraft:leases", "minedraft:job:b", "arq:job:1", "what"],
)
def test_a_key_that_is_left(sound: Sound, key: str) -> None:
    sound.redis.set(key, 1)
    found = sound.audit()
    assert found.keys == 1
    assert key in found.findings[0]


def test_a_job_that_nobody_knows(sound: Sound) -> None:
    sound.redis.zadd("minedraft:jobs", {"b": 1})
    assert sound.audit().keys == 1


def test_the_order_in_which_rows_ended(sound: Sound) -> None:
    sound.end_in_another_order()
    assert sound.audit("done").clean
    assert sound.audit("input").wrong == 1
    _swap(sound.results)
    assert sound.audit("done").wrong == 1


def test_a_consumed_job(sound: Sound) -> None:
    sound.end_in_another_order()
    sound.consume()
    assert sound.audit("consume").findings == []
    assert sound.audit("input").counters > 0
    sound.results.append(sound.results[5])
    assert sound.audit("consume").doubled == 1
    del sound.results[5:7], sound.results[-1]
    assert sound.audit("consume").lost == 2


@pytest.mark.parametrize("part", ["results", "finished", "taken", "failed"])
def test_what_a_consumer_left(sound: Sound, part: str) -> None:
    sound.consume()
    sound.redis.rpush(f"minedraft:job:a:{part}", 1)
    assert sound.audit("consume").keys == 1


def test_a_cancelled_job(sound: Sound) -> None:
    sound.cancel(20)
    found = sound.audit(cancelled=True)
    assert found.findings == []
    assert (found.dropped, found.lost) == (20, 0)
    assert sound.audit().lost == 20
    sound.results.append(sound.results[5])
    assert sound.audit(cancelled=True).doubled == 1
    sound.results.pop()
    sound.redis.hset("minedraft:job:a:rows:0", "7", "{}")
    sound.redis.hset("minedraft:job:a:epochs", "0", 1)
    assert sound.audit(cancelled=True).keys == 2


def test_a_purge(sound: Sound) -> None:
    redis = sound.redis
    redis.hset("minedraft:job:b", "state", "completed")
    redis.zadd("minedraft:jobs", {"b": 2})
    redis.hset("minedraft:identities", mapping={"1": "a", "2": "b"})
    before = snapshot(redis, "a")

    def purge_finds() -> list[str]:
        made = Audit()
        audit_purge(made, redis, "a", before)
        return made.findings

    assert len(purge_finds()) == 4  # it has not begun
    redis.delete("minedraft:job:a", "minedraft:job:a:finished")
    redis.zrem("minedraft:jobs", "a")
    assert len(purge_finds()) == 1
    redis.hdel("minedraft:identities", "1")
    assert purge_finds() == []
    redis.hset("minedraft:job:b", "done", 1)
    assert len(purge_finds()) == 1
