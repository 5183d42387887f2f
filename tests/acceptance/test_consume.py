"""`results --consume`: rows move from Redis to a file, each once, whatever is killed meanwhile."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from redis import Redis
from shell import Shell, lines

from producer.server.embedded import EmbeddedRedis


def consumer(shell: Shell, job: str, file: str = "out.jsonl") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["producer", "results", job, "--consume", "-o", file],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def grown(path: Path, process: "subprocess.Popen[str]", size: int) -> None:
    """Wait until the file is larger than `size`, or the process has ended."""
    deadline = time.monotonic() + 30
    while process.poll() is None and not (path.exists() and path.stat().st_size > size):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ids(path: Path) -> list[str]:
    return [json.loads(line)["custom_id"] for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def refused(shell: Shell, *arguments: str, words: str) -> None:
    ended = shell.run("producer", "results", *arguments)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert words in ended.stderr


def test_rows_are_moved_while_the_job_runs(shell: Shell) -> None:
    shell.fake("--seconds-per-row 0.06 --fail-every 10", "--max-num-seqs", "4")
    job = shell.submit(text=lines(800) + "{broken\n")["job_id"]
    moving = consumer(shell, job)
    grown(shell.folder / "out.jsonl", moving, 1000)
    assert shell.status(job)["state"] == "running"
    refused(shell, job, "--consume", "-o", "out.jsonl", words="another `producer results --consume`")
    _, said = moving.communicate(timeout=60)
    told = f"801 of 801 rows, 81 of them failed, of job {job} (completed) are in out.jsonl\n"
    assert (moving.returncode, said) == (0, told)
    found = ids(shell.folder / "out.jsonl")
    assert found[0] is None, "a line that was refused ended first"
    assert sorted(found[1:], key=int) == [str(n) for n in range(800)]
    status = shell.status(job)
    assert (status["consumed"], status["done"], status["failed"]) == (801, 801, 81)
    assert status["redis_bytes"] < 2000
    assert "consumed: 801 rows" in shell.producer("status", job)
    refused(shell, job, words=f"all 801 rows of job {job} were consumed")
    refused(shell, job, "-o", "out.jsonl", words="they are in the file of `--consume`")
    assert len(ids(shell.folder / "out.jsonl")) == 801
    refused(shell, job, "--consume", "-o", "other.jsonl", words="has 0 lines, 801 of the job's results")
    assert not (shell.folder / "other.jsonl").exists()
    (shell.folder / "other.jsonl").write_text("{}\n" * 801)
    refused(shell, job, "--consume", "-o", "other.jsonl", words="has other lines than the 801 of the job's results")
    assert "801 of 801" in shell.run("producer", "results", job, "--consume", "-o", "out.jsonl").stderr, "and again"


@pytest.mark.parametrize("seed", range(3))
def test_a_consumer_that_is_killed_goes_on_where_it_was(shell: Shell, seed: int) -> None:
    chance = random.Random(seed)
    shell.fake("--seconds-per-row 0.01", "--max-num-seqs", "8")
    job = shell.submit(text=lines(3000))["job_id"]
    path = shell.folder / "out.jsonl"
    kills = 0
    while (moving := consumer(shell, job)).poll() is None:
        if kills < 12:
            grown(path, moving, path.stat().st_size if path.exists() else 0)
            time.sleep(chance.random() * 0.05)  # some moment after it began to write, another one each time
            moving.kill()
            moving.communicate()
            kills += 1
        else:
            _, said = moving.communicate(timeout=60)
            assert moving.returncode == 0, said
            break
    assert sorted(ids(path), key=int) == [str(n) for n in range(3000)]
    assert shell.status(job)["consumed"] == 3000


def test_it_waits_for_a_redis_that_is_killed_and_comes_back(shell: Shell) -> None:
    shell.fake("--seconds-per-row 0.02", "--max-num-seqs", "4")
    job = shell.submit(text=lines(600))["job_id"]
    moving = consumer(shell, job)
    for size in (0, 20_000):
        grown(shell.folder / "out.jsonl", moving, size)
        pid = EmbeddedRedis(shell.folder / "data" / "redis").status().pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        shell.producer("redis", "start")
    _, said = moving.communicate(timeout=90)
    assert moving.returncode == 0, said
    assert sorted(ids(shell.folder / "out.jsonl"), key=int) == [str(n) for n in range(600)]


def test_a_full_disk_loses_nothing(shell: Shell) -> None:
    shell.fake()
    job = shell.submit(text=lines(500))["job_id"]
    shell.producer("watch", job)
    command = f"producer results {job} --consume -o out.jsonl"
    ended = shell.run("bash", "-c", f"ulimit -f 20; {command}")  # 20 KiB
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert "out.jsonl: File too large; no row is lost, the same command goes on" in ended.stderr
    assert shell.status(job)["consumed"] < 500
    assert "500 of 500" in shell.run("bash", "-c", command).stderr
    assert sorted(ids(shell.folder / "out.jsonl"), key=int) == [str(n) for n in range(500)]


def test_a_file_that_is_not_this_job_s_is_left_alone(shell: Shell) -> None:
    shell.fake("--fail-every 1")
    first, second = (shell.submit(text=lines(20, tag))["job_id"] for tag in "ab")
    shell.producer("watch", first, code=1)
    shell.producer("watch", second, code=1)
    shell.producer("results", first, "-o", "out.jsonl")
    before = (shell.folder / "out.jsonl").read_bytes()
    refused(shell, second, "--consume", "-o", "out.jsonl", words="out.jsonl has another line 1 than the job")
    assert (shell.folder / "out.jsonl").read_bytes() == before
    notes = shell.folder / "notes.txt"
    notes.write_text("my notes, no newline")
    refused(shell, second, "--consume", "-o", "notes.txt", words="notes.txt has another line 1 than the job")
    assert notes.read_text() == "my notes, no newline"
    assert json.loads(shell.producer("retry", second, "--json"))["retried"] == 20, "a slip costs nothing"
    shell.producer("results", first, "--consume", "-o", "out.jsonl")
    assert (shell.folder / "out.jsonl").read_bytes() == before, "all of it was there"


def test_two_jobs_are_not_mixed_and_the_rest_of_a_damaged_file_s_job_can_be_had(shell: Shell) -> None:
    """A job of which some was consumed, and another job's file that is as long; its own file is damaged."""
    shell.fake("--seconds-per-row 0.08", "--max-num-seqs", "4")  # it runs for 12 s, however busy the machine is
    job = shell.submit(text=lines(600))["job_id"]
    path, foreign = shell.folder / "out.jsonl", shell.folder / "foreign.jsonl"
    moving = consumer(shell, job)
    while not shell.status(job)["consumed"]:
        assert moving.poll() is None
        time.sleep(0.02)
    moving.kill()
    moving.communicate()
    shell.producer("watch", job)
    moved = shell.status(job)["consumed"]
    assert 0 < moved < 600
    foreign.write_text(path.read_text().replace("custom_id", "id"))
    own, other = path.read_bytes(), foreign.read_bytes()
    refused(shell, job, "--consume", "-o", "foreign.jsonl", words=f"has other lines than the {moved} of the job's")
    path.write_bytes(own[:50])
    told = f"has 0 lines, {moved} of the job's results were consumed before"
    refused(shell, job, "--consume", "-o", "out.jsonl", words=told)
    refused(shell, job, "--consume", "-o", "out.jsonl", words=f"`producer results {job} -o OTHER` writes what is still")
    assert (path.read_bytes(), foreign.read_bytes()) == (own[:50], other)
    shell.producer("results", job, "-o", "OTHER")
    assert len(ids(shell.folder / "OTHER")) == 600 - moved
    path.write_bytes(own)
    shell.producer("results", job, "--consume", "-o", "out.jsonl")
    assert sorted(ids(path), key=int) == [str(n) for n in range(600)]


def test_a_cancelled_job_ends_it(shell: Shell) -> None:
    job = shell.submit(text=lines(20))["job_id"]
    moving = consumer(shell, job)
    shell.producer("cancel", job)
    _, said = moving.communicate(timeout=30)
    told = f"0 of 20 rows, 0 of them failed, of job {job} (cancelled) are in out.jsonl\n"
    assert (moving.returncode, said) == (0, told)


def test_a_job_that_goes_away_meanwhile_is_said_to_be_gone(shell: Shell) -> None:
    job = shell.submit(text=lines(20))["job_id"]
    moving = consumer(shell, job)
    while not (shell.folder / "out.jsonl").exists():
        assert moving.poll() is None
        time.sleep(0.02)
    with Redis.from_url(EmbeddedRedis(shell.folder / "data" / "redis").url) as redis:
        redis.flushall()
    _, said = moving.communicate(timeout=30)
    assert (moving.returncode, len(said.splitlines())) == (2, 1)
    assert f"job {job} is not in Redis any more" in said
