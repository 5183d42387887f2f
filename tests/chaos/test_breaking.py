"""Workers and Redis broken mid-job: every row is answered once all the same."""

import signal
import subprocess
import time

import pytest
from shell import Shell, assert_each_once, lines


def _ids(rows: int) -> list[str]:
    return [str(n) for n in range(rows)]


def test_kill_9_of_a_worker_leaves_its_rows_to_the_other(shell: Shell) -> None:
    victim = shell.fake("--seconds-per-row 0.5", "--max-num-seqs", "8")
    job = shell.submit(text=lines(80))["job_id"]
    shell.await_done(job, 8)
    other = shell.fake("--seconds-per-row 0.05", "--max-num-seqs", "8")
    victim.kill()
    done = shell.status(job)["done"]
    shell.producer("watch", job)
    assert_each_once(shell.results(job), _ids(80))
    assert shell.status(job)["done"] == 80
    assert other.metric("minedraft_shards_reaped_total") >= 1
    assert other.metric('minedraft_rows_total{outcome="answered"}') >= 80 - done - 8


def test_a_worker_that_was_frozen_harms_nothing_when_it_wakes_up(shell: Shell) -> None:
    frozen = shell.fake("--seconds-per-row 0.5", "--max-num-seqs", "8")
    job = shell.submit(text=lines(60))["job_id"]
    shell.await_done(job, 8)
    frozen.process.send_signal(signal.SIGSTOP)
    other = shell.fake("--seconds-per-row 0.05", "--max-num-seqs", "8")
    other.await_log("taken back", 20)
    frozen.process.send_signal(signal.SIGCONT)
    shell.producer("watch", job)
    assert_each_once(shell.results(job), _ids(60))
    assert shell.status(job)["done"] == 60
    more = shell.submit(text=lines(40, "more-"))["job_id"]
    shell.producer("watch", more)
    assert frozen.process.poll() is None


def test_redis_restarted_mid_job(shell: Shell) -> None:
    worker = shell.fake("--seconds-per-row 0.4", "--max-num-seqs", "4")
    job = shell.submit(text=lines(60))["job_id"]
    shell.await_done(job, 8)
    watcher = subprocess.Popen(["producer", "watch", job], env=shell.environment, stderr=subprocess.PIPE, text=True)
    shell.run("sleep", "1")
    shell.producer("redis", "stop")
    worker.await_log("Redis is away")
    shell.run("sleep", "1")
    shell.producer("redis", "start")
    _, said = watcher.communicate(timeout=60)
    assert watcher.returncode == 0, said
    assert "Redis is away" in said
    assert_each_once(shell.results(job), _ids(60))
    assert shell.status(job)["done"] == 60
    assert "Traceback" not in worker.text()


def test_rolling_restarts_lose_no_attempt_and_leave_no_gap(shell: Shell) -> None:
    flags = ("--seconds-per-row 0.2", "--max-num-seqs", "4")
    fleet = [shell.fake(*flags) for _ in range(2)]
    rows = 600
    job = shell.submit(text=lines(rows))["job_id"]
    for old in fleet:
        shell.fake(*flags)
        before = shell.status(job)["done"]
        old.process.send_signal(signal.SIGTERM)
        shell.await_done(job, before + 8, 3)  # others go on meanwhile
        assert old.process.wait(20) == 0
        assert "drained" in old.text()
    assert shell.status(job)["done"] < rows
    shell.producer("watch", job)
    assert_each_once(shell.results(job), _ids(rows))
    assert shell.status(job)["attempts_lost"] == 0


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_row_that_kills_every_worker_ends_as_an_error_and_the_job_with_it(shell: Shell) -> None:
    poison = "question 17"
    flags = (f"--seconds-per-row 0.05 --kill-on '{poison}'", "--max-num-seqs", "8")
    job = shell.submit(text=lines(60))["job_id"]
    deaths = 0
    worker = shell.fake(*flags)
    while shell.status(job)["state"] != "completed":
        if worker.process.poll() is not None:
            assert worker.process.returncode == -signal.SIGKILL
            deaths += 1
            worker = shell.fake(*flags)
        time.sleep(0.2)
    results = shell.results(job)
    assert [line["custom_id"] for line in results] == _ids(60)
    (error,) = [line["error"] for line in results if line["error"]]
    assert (error["code"], error["line"]) == ("poison_row", 18)
    assert deaths == 5 <= shell.status(job)["attempts_lost"]  # of shards that were there by chance, too
    assert shell.run("producer", "watch", job).returncode == 1
