"""`producer submit` is killed, and the same is typed again: the same job as if nothing had happened."""

import hashlib
import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from redis import Redis
from shell import Shell, lines

from producer.record.keys import key

ROWS = 20_000


@pytest.fixture
def file(shell: Shell) -> Path:
    path = shell.folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{number} {'x' * 300}"}) + "\n" for number in range(ROWS)))
    return path


def record(shell: Shell) -> "Redis[str]":
    return Redis(unix_socket_path=str(shell.folder / "data" / "redis" / "redis.sock"), decode_responses=True)


def content(shell: Shell, job: str) -> tuple[str, str, str]:
    """All rows of a job by their place, its counters, and its identity."""
    redis = record(shell)
    stored = redis.hgetall(key("job", job))
    digest = hashlib.sha256()
    for shard in range(int(stored["shards"])):
        digest.update(json.dumps(redis.hgetall(key("rows", job, shard)), sort_keys=True).encode())
    counters = [stored[name] for name in ("state", "rows", "shards", "done", "calls", "digest")]
    return digest.hexdigest(), " ".join(counters), stored["identity"]


def calls(shell: Shell) -> int:
    """How often rows were staged, of all submissions that are not committed."""
    redis = record(shell)
    return sum(int(redis.hget(key("job", job), "calls") or 0) for job in redis.zrange(key("staging"), 0, -1))


def submit_and_kill(shell: Shell, file: Path, how: signal.Signals, after: float) -> bool:
    """Type it and kill it, so many seconds after it has staged rows; False when it was done by then."""
    before = calls(shell)
    process = subprocess.Popen(
        ["producer", "submit", file],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while process.poll() is None and calls(shell) <= before:
        time.sleep(0.002)
    time.sleep(after)
    process.send_signal(how)
    _, said = process.communicate(timeout=20)
    assert b"Traceback" not in said
    assert process.returncode in (0, -9, 130)
    return process.returncode != 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_at_any_point_the_same_again_goes_on(shell: Shell, file: Path, how: signal.Signals) -> None:
    undisturbed = shell.submit(file)
    expected = content(shell, undisturbed["job_id"])
    redis = record(shell)
    redis.flushall()
    seeded, killed = random.Random(int(how)), 0
    for _ in range(3):
        if not submit_and_kill(shell, file, how, seeded.random() * 0.05):
            break
        killed += 1
        if how is signal.SIGKILL:  # ten seconds pass
            for job, heard in redis.zrange(key("staging"), 0, -1, withscores=True):
                redis.zadd(key("staging"), {job: heard - 10_000})
        assert len(json.loads(shell.producer("list", "--json"))) == 1
    assert killed
    last = shell.run("producer", "submit", file)
    assert last.returncode == 0
    assert "continued: " in last.stderr or killed < 3
    (job,) = json.loads(shell.producer("list", "--json"))
    assert content(shell, job["job_id"]) == expected


def test_a_submission_that_was_cut_short_is_seen_and_can_be_cancelled(shell: Shell, file: Path) -> None:
    assert submit_and_kill(shell, file, signal.SIGINT, 0)
    (left,) = json.loads(shell.producer("list", "--json"))
    assert (left["state"], 0 < left["rows"] < ROWS) == ("submitting", True)
    shell.producer("cancel", left["job_id"])
    assert json.loads(shell.producer("list", "--json")) == []


def test_rows_are_added_and_a_changed_file_is_told_apart(shell: Shell) -> None:
    shell.fake()
    file = shell.folder / "rows.jsonl"
    file.write_text(lines(30))
    job = shell.submit(file)["job_id"]
    shell.producer("watch", job)
    file.write_text(lines(50))
    other = shell.run("producer", "submit", file)
    assert f"--append {job}" in other.stderr
    added = shell.submit(file, "--append", job)
    assert (added["job_id"], added["rows"], added["appended"]) == (job, 50, 20)
    shell.producer("watch", job)
    assert [row["custom_id"] for row in shell.results(job)] == [str(number) for number in range(50)]
    file.write_text("{}\n" + lines(50))
    refused = shell.run("producer", "submit", file, "--append", job)
    assert refused.returncode == 2
    assert "are not those of job" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_equal_rows_are_computed_once(shell: Shell) -> None:
    shell.fake()
    text = "".join(json.dumps({"custom_id": str(number), "prompt": f"p{number % 10}"}) + "\n" for number in range(1000))
    (shell.folder / "rows.jsonl").write_text(text)
    job = shell.submit("rows.jsonl", "--dedupe")["job_id"]
    shell.producer("watch", job)
    rows = shell.results(job)
    texts = [row["response"]["body"]["choices"] for row in rows]
    assert len(texts) == 1000
    assert all(text == texts[number % 10] for number, text in enumerate(texts))
    status, usage = shell.status(job), sum(row["response"]["body"]["usage"]["completion_tokens"] for row in rows)
    assert (status["copies"], status["done"]) == (990, 1000)
    assert status["completion_tokens"] == usage / 100, "what was computed"


@pytest.mark.parametrize(("how", "code"), [("refuse", 2), ("error-row", 0)])
def test_a_name_that_is_there_twice(shell: Shell, how: str, code: int) -> None:
    rows = lines(20) + lines(3)
    ended = shell.run("producer", "submit", "-", "--json", "--on-duplicate", how, text=rows)
    assert ended.returncode == code
    if code:
        assert "custom_id '0' is on line 1 and again on line 21" in ended.stderr
    else:
        found = json.loads(ended.stdout)
        assert (found["rows"], found["invalid"]) == (23, 3)


def test_rows_are_added_whatever_the_table_says_of_new_jobs(shell: Shell) -> None:
    file = shell.folder / "rows.jsonl"
    file.write_text(lines(3))
    job = shell.submit(file)["job_id"]
    (shell.folder / "minedraft.toml").write_text("[submit.defaults]\nmax_tokens = 5\n")
    file.write_text(lines(5))
    assert shell.submit(file, "--append", job)["appended"] == 2
    refused = shell.run("producer", "submit", file, "--append", job, "--set", "max_tokens=5")
    assert (refused.returncode, "other defaults: leave them out" in refused.stderr) == (2, True)
