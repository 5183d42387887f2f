"""Somebody writes nonsense, or worse, into Redis: it ends as an error row or is passed over, and no worker dies."""

import json
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis
from shell import Shell, lines, shell_in

from producer.record.keys import key
from producer.record.models import CHAT_URL, Row
from producer.server.embedded import EmbeddedRedis


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with shell_in(tmp_path) as made:
        yield made


@pytest.fixture
def redis(shell: Shell) -> Iterator[Redis]:
    with Redis.from_url(EmbeddedRedis(shell.folder / "data" / "redis").url) as client:
        yield client


class Exploit:
    """Unpickled, it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def _stored(**changes: object) -> bytes:
    row = json.loads(Row(0, 1, "a", CHAT_URL, {"messages": []}).to_json())
    return json.dumps(row | changes).encode()


UNREADABLE = {
    "nothing": b"",
    "no-json": b"{line",
    "no-utf8": b"\xff\xfe\x00",
    "null": b"null",
    "number": b"7",
    "array": b"[]",
    "empty-object": b"{}",
    "constant": b"NaN",
    "deep": b"[" * 100_000,
    "deep-body": b'{"line":1,"custom_id":"a","url":"","body":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "digits": b"9" * 5_000,
    "huge": b"x" * 20_000_000,
    "line-text": _stored(line="x"),
    "line-null": _stored(line=None),
    "id-number": _stored(custom_id=7),
    "id-surrogate": _stored(custom_id="\ud800"),
    "url-object": _stored(url={}),
    "body-array": _stored(body=[]),
    "body-null": _stored(body=None),
    "more": _stored(index=3, __class__="x"),
    "pickle": pickle.dumps({"line": 1}),
}


def test_rows_that_cannot_be_read_are_error_rows_and_all_others_are_answered(shell: Shell, redis: Redis) -> None:
    job = shell.submit(text=lines(100))["job_id"]
    places = [3 * number for number in range(len(UNREADABLE))]
    for index, text in zip(places, UNREADABLE.values(), strict=True):
        (shard,) = [name for name in redis.keys(key("rows", job, "*")) if redis.hexists(name, index)]
        redis.hset(shard, index, text)
    worker = shell.fake()
    watched = shell.run("producer", "watch", job, seconds=60)
    assert watched.returncode == 1, watched.stderr
    results = shell.results(job)
    assert len(results) == 100
    failed = {index: line["error"]["code"] for index, line in enumerate(results) if line["error"]}
    named = {name: failed.get(index) for name, index in zip(UNREADABLE, places, strict=True)}
    assert named == dict.fromkeys(UNREADABLE, "unreadable_row")
    assert len(failed) == len(UNREADABLE)
    assert "Traceback" not in worker.text()
    assert worker.terminate() == 0


def _token(redis: Redis, name: bytes, payload: bytes | None) -> None:
    redis.zadd(key("tokens", "target"), {name: int(time.time() * 1000)})
    if payload is not None:
        redis.set(b"arq:job:" + name, payload)


def _job(**changes: object) -> bytes:
    return json.dumps({"t": None, "f": "run_shard", "a": [], "k": {}, "et": 1} | changes).encode()


GARBAGE: dict[str, Callable[[Redis], object]] = {
    "no-payload": lambda redis: _token(redis, b"x", None),
    "no-json": lambda redis: _token(redis, b"x", b"{"),
    "no-utf8": lambda redis: _token(redis, b"x", b"\xff\xfe"),
    "array": lambda redis: _token(redis, b"x", b"[]"),
    "deep": lambda redis: _token(redis, b"x", b"[" * 100_000),
    "unknown-function": lambda redis: _token(redis, b"x", _job(f="os.system")),
    "odd-function": lambda redis: _token(redis, b"x", _job(f=[])),
    "arguments": lambda redis: _token(redis, b"x", _job(a=["x"], k={"y": 1})),
    "odd-arguments": lambda redis: _token(redis, b"x", _job(a=7, k=None)),
    "odd-tries": lambda redis: _token(redis, b"x", _job(t="x", et="y")),
    "odd-name": lambda redis: _token(redis, b"\xff\x00\x1b[2J", _job()),
    "odd-names": lambda redis: [_token(redis, b"\xff%d" % number, None) for number in range(200)],
    "worker-card": lambda redis: (
        redis.zadd(key("workers"), {"x": 1e15}),
        redis.set(key("worker", "x"), "no json"),
    ),
    "worker-card-shape": lambda redis: (
        redis.zadd(key("workers"), {"x": 1e15}),
        redis.set(key("worker", "x"), '{"slots": "many"}'),
    ),
    "worker-card-bytes": lambda redis: (
        redis.zadd(key("workers"), {"x": 1e15}),
        redis.set(key("worker", "x"), b"\xff"),
    ),
    "lease": lambda redis: redis.zadd(key("leases"), {"nonsense": 1, "no job": 1, "gone 0": 1, b"\xff 1": 1}),
    "runnable": lambda redis: redis.zadd(key("runnable", "target"), {"nosuchjob": 0, b"\xff": 0, "": 0}),
}


def test_garbage_around_the_queue_stops_no_worker(shell: Shell, redis: Redis) -> None:
    workers = [shell.fake()]
    for kind, write in GARBAGE.items():
        write(redis)
        job = shell.submit(text=lines(20, f"{kind}-"))["job_id"]
        shell.await_done(job, 20, seconds=15)
        assert [worker.process.poll() for worker in workers] == [None] * len(workers), kind
        assert not [line for line in shell.results(job) if line["error"]], kind
    workers.append(shell.fake())  # one that comes when all of it is there
    shell.await_done(shell.submit(text=lines(20, "all-"))["job_id"], 20)
    assert [worker.terminate() for worker in workers] == [0, 0]


def test_a_pickled_token_is_never_unpickled(shell: Shell, redis: Redis) -> None:
    proof = shell.folder / "owned"
    payload = pickle.dumps({"t": None, "f": "run_shard", "a": (Exploit(proof),), "k": {}, "et": 1, "x": Exploit(proof)})
    worker = shell.fake()
    for number in range(5):
        _token(redis, b"pickle%d" % number, payload)
    shell.await_done(shell.submit(text=lines(40))["job_id"], 40)
    for _ in range(200):
        if not redis.exists(*(f"arq:job:pickle{number}" for number in range(5))):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the worker never looked at the tokens")
    assert not proof.exists()
    assert worker.process.poll() is None
    pickle.loads(payload)
    assert proof.exists(), "the exploit is none"
