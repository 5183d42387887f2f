"""Jobs under a user's hands: cancel, pause, resume, retry, purge; priorities, error rates, lifetimes."""

import json
import re
import subprocess
import time
from collections.abc import Callable

import pytest
from redis import Redis
from shell import Shell, assert_each_once, lines

from producer.server.embedded import EmbeddedRedis


def redis_of(shell: Shell) -> "Redis":
    return Redis.from_url(EmbeddedRedis(shell.folder / "data" / "redis").url, decode_responses=True)


def await_that(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def refused(shell: Shell, *arguments: str, words: str) -> None:
    """`producer ...` says in one line why not, and what would."""
    ended = shell.run("producer", *arguments)
    assert ended.returncode == 2, ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert re.search(words, ended.stderr), ended.stderr
    assert ended.stdout == ""


def test_cancel_keeps_what_is_done_and_drops_the_rest(shell: Shell) -> None:
    worker = shell.fake("--seconds-per-row 0.2", "--max-num-seqs", "4")
    job = shell.submit(text=lines(400))["job_id"]
    shell.await_done(job, 4)
    told = json.loads(shell.producer("cancel", job, "--json"))
    assert (told["job_id"], told["state"]) == (job, "cancelled")
    assert 4 <= told["done"] < 400
    await_that(lambda: worker.metric("minedraft_rows_in_flight") == 0)
    assert shell.status(job)["done"] == len(shell.results(job)) == told["done"]
    with redis_of(shell) as redis:
        assert redis.keys(f"*{job}:rows:*") == []
    refused(shell, "cancel", job, words=f"is cancelled already; `producer purge {job}`")
    refused(shell, "pause", job, words="is cancelled already")
    refused(shell, "resume", job, words="not paused but cancelled")
    refused(shell, "retry", job, words="it is cancelled")
    shell.producer("watch", job, code=1)
    assert shell.submit(text=lines(400))["resumed"] is False, "the same rows are a new job"


def test_a_paused_job_waits_and_goes_on(shell: Shell) -> None:
    shell.fake("--seconds-per-row 0.05", "--max-num-seqs", "4")
    job = shell.submit(text=lines(1000))["job_id"]
    shell.await_done(job, 4)
    assert json.loads(shell.producer("pause", job, "--json"))["state"] == "paused"
    refused(shell, "pause", job, words="is paused already")
    refused(shell, "purge", job, words=f"is paused; `producer cancel {job}`")
    watching = subprocess.Popen(
        ["producer", "watch", job], env=shell.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert watching.stderr
    while f"job {job} is paused; `producer resume {job}`" not in watching.stderr.readline():
        assert watching.poll() is None
    other = shell.submit(text=lines(20, "other-"))["job_id"]
    shell.producer("watch", other)
    assert shell.status(job)["state"] == "paused"
    assert shell.status(job)["done"] < 1000
    assert watching.poll() is None
    shell.producer("resume", job)
    watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert_each_once(shell.results(job), [str(n) for n in range(1000)])
    refused(shell, "resume", job, words="not paused but completed; `producer retry")


def test_an_error_rate_stops_the_job_and_resume_counts_anew(shell: Shell) -> None:
    shell.fake("--fail-on question")
    job = shell.submit("-", "--max-error-rate", "0.5", text=lines(2000))["job_id"]
    ended = shell.run("producer", "watch", job)
    assert ended.returncode == 1
    assert re.search(rf"job {job} has paused itself: \d+ of \d+ rows failed.*`producer resume {job}`", ended.stderr)
    stopped = shell.status(job)
    assert stopped["state"] == "paused"
    assert 50 <= stopped["done"] < 2000
    assert "rows failed" in stopped["reason"]
    assert re.search(rf"paused.*\n(.*\n)*{job} has paused itself: \d+ of", shell.producer("status"))
    ended = shell.run("producer", "results", job, "--consume", "-o", "out.jsonl")
    assert (ended.returncode, "has paused itself" in ended.stderr) == (1, True)
    consumed = shell.status(job)["consumed"]
    assert consumed == len((shell.folder / "out.jsonl").read_text().splitlines()) == shell.status(job)["done"]
    shell.producer("resume", job)
    await_that(lambda: shell.status(job)["state"] == "paused")
    assert shell.status(job)["done"] >= consumed + 50


def test_retry_runs_what_failed_and_nothing_else(shell: Shell) -> None:
    worker = shell.fake("--fail-every 5")
    job = shell.submit(text=lines(50) + "{broken\n")["job_id"]
    shell.producer("watch", job, code=1)
    assert shell.status(job)["failed"] == 11
    before = {line["custom_id"]: line["id"] for line in shell.results(job) if not line["error"]}
    worker.terminate()
    shell.fake()
    assert json.loads(shell.producer("retry", job, "--json"))["retried"] == 10
    shell.producer("watch", job, code=1)
    results = shell.results(job)
    assert len(results) == 51
    assert_each_once(results[:50], [str(n) for n in range(50)])
    assert results[50]["error"]["line"] == 51
    assert before.items() <= {line["custom_id"]: line["id"] for line in results}.items(), "the others are untouched"
    refused(shell, "retry", job, words="the 1 that failed were refused at submission")


def test_purge_leaves_nothing(shell: Shell) -> None:
    shell.fake()
    kept, *old = (shell.submit(text=lines(40, tag))["job_id"] for tag in "abc")
    for job in (kept, *old):
        shell.producer("watch", job)
    refused(shell, "purge", old[0], "nosuchjob", words="nosuchjob")
    told = json.loads(shell.producer("purge", *old, "--json"))
    assert told["purged"] == old
    assert told["freed_bytes"] > 2 * 40 * 100
    refused(shell, "status", old[0], words="no job")
    with redis_of(shell) as redis:
        assert not [name for job in old for name in redis.keys(f"*{job}*")]
    ended = shell.run("producer", "purge", "--ended", "--older-than", "1h")
    assert "0 jobs purged" in ended.stderr
    assert len(shell.results(kept)) == 40
    waiting = shell.submit("-", "--model", "other", text=lines(3))["job_id"]
    assert "1 job purged, about" in shell.run("producer", "purge", "--ended").stderr
    assert [job["job_id"] for job in json.loads(shell.producer("status", "--json"))] == [waiting]
    assert shell.submit("-", "--model", "target", text=lines(40, "a"))["resumed"] is False


def test_what_ended_just_now_is_purged_with_all_that_ended(shell: Shell) -> None:
    for number in range(3):
        shell.producer("cancel", shell.submit(text=lines(2, f"{number}-"))["job_id"])
        assert "1 job purged" in shell.run("producer", "purge", "--ended").stderr


def test_a_job_with_a_lifetime_purges_itself(shell: Shell) -> None:
    shell.fake()
    job = shell.submit("-", "--ttl", "1s", text=lines(20))["job_id"]
    with redis_of(shell) as redis:
        await_that(lambda: redis.keys(f"*{job}*") == [], seconds=60)


def test_a_higher_priority_goes_first_and_is_no_other_job(shell: Shell) -> None:
    low = shell.submit("-", "--priority", "-5", text=lines(100, "low-"))["job_id"]
    high = shell.submit("-", "--priority", "100", "--ttl", "7d", text=lines(100, "high-"))["job_id"]
    again = shell.run("producer", "submit", "-", "--priority", "3", text=lines(100, "high-"))
    assert again.stdout.strip() == high, "the same rows are the same job, whatever its options"
    assert "with the options that it has" in again.stderr
    assert shell.status(high)["priority"] == 100
    assert re.search(rf"{low} .* queued +-5 ", shell.producer("status"))
    shell.fake("--seconds-per-row 0.05", "--max-num-seqs", "8")
    shell.producer("watch", high)
    shell.producer("watch", low)
    first, last = shell.status(high), shell.status(low)
    assert last["started"] - first["started"] > 0.7 * (first["ended"] - first["started"]), "as equals they take turns"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "-", "--priority", "101"), "--priority: 101"),
        (("submit", "-", "--max-error-rate", "1.5"), "--max-error-rate: 1.5"),
        (("submit", "-", "--max-error-rate", "nan"), "--max-error-rate: nan"),
        (("submit", "-", "--ttl", "7 days"), "--ttl: '7 days' is no duration such as 30s"),
        (("submit", "-", "--ttl", "0s"), "before anybody has its results"),
        (("submit", "-", "--model", ""), "--model: a name is needed"),
        (("purge",), "--ended"),
        (("purge", "x", "--ended"), "--ended"),
        (("purge", "x", "--older-than", "7d"), "goes with --ended"),
        (("purge", "--ended", "--older-than", "7"), "--older-than: '7' is no duration"),
        (("results", "x", "--consume"), "-o FILE"),
        (("results", "x", "--consume", "-o", "f", "--order", "input"), "--order input"),
        *(
            ((command, "no\x1b[31mjob"), r"no job 'no\\x1b")
            for command in ("cancel", "pause", "resume", "retry", "purge")
        ),
    ],
    ids=lambda value: "-".join(value[:1] + value[-2:]).replace("\x1b", "ESC") if isinstance(value, tuple) else None,
)
def test_what_makes_no_sense_is_said_in_one_line(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    refused(shell, *arguments, words=words)


@pytest.mark.parametrize("command", ["cancel", "pause", "resume", "retry", "purge", "results"])
def test_no_redis_is_said_in_one_line(shell: Shell, command: str) -> None:
    more = ("--consume", "-o", "out.jsonl") if command == "results" else ()
    ended = shell.run("producer", command, "x", *more, "--redis", "redis://127.0.0.1:1/0")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (3, 1), ended.stderr
    assert "cannot be reached" in ended.stderr


def test_a_hostile_record_does_no_harm_to_a_terminal(shell: Shell) -> None:
    """Whoever can write to Redis may choose any name, model or reason."""
    job = shell.submit("-", "--name", "a\x1b]0;b", text=lines(3))["job_id"]
    with redis_of(shell) as redis:
        evil = {field: f"{field}\x1b[2J\x9b\n\u202e" for field in ("name", "model", "reason")}
        redis.hset(f"minedraft:job:{job}", mapping={**evil, "state": "paused"})
    for arguments in (("status",), ("status", job), ("status", "--json"), ("watch", job), ("resume", job)):
        ended = shell.run("producer", *arguments)
        said = ended.stdout + ended.stderr
        assert job in said
        assert not [char for char in said if not char.isprintable() and char != "\n"], arguments
    with redis_of(shell) as redis:
        assert redis.hget(f"minedraft:job:{job}", "reason") is None


def test_status_of_one_job_says_what_it_takes(shell: Shell) -> None:
    shell.fake()
    job = shell.submit(text=lines(100))["job_id"]
    shell.producer("watch", job)
    status = shell.status(job)
    assert 100 * 200 < status["redis_bytes"] < 100 * 2000
    assert status["redis_bytes_per_row"] == round(status["redis_bytes"] / 100)
    assert re.search(r"memory in Redis: about \d+\.\d kB, \d+ bytes a row", shell.producer("status", job))
