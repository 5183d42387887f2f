"""`producer submit` while Redis goes away in the middle of it."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
from shell import Shell, assert_each_once

from producer.server.embedded import EmbeddedRedis

ROWS = 300
#: Several times what is gathered before it is sent.
LINES = [json.dumps({"custom_id": str(number), "prompt": "x" * 20_000}).encode() + b"\n" for number in range(ROWS)]


@contextmanager
def halfway(shell: Shell) -> "Iterator[subprocess.Popen[bytes]]":
    """A submission from a pipe that has more to come; some of it is staged."""
    with subprocess.Popen(
        ["producer", "submit", "-"],
        env=shell.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as submitting:
        try:
            assert submitting.stdin
            submitting.stdin.writelines(LINES[: ROWS // 2])
            submitting.stdin.flush()
            while not any(job["rows"] for job in json.loads(shell.producer("status", "--json"))):
                assert submitting.poll() is None
            yield submitting
        finally:
            submitting.kill()
            assert submitting.stdin
            with suppress(BrokenPipeError):  # what it did not read
                submitting.stdin.close()


def redis_pid(shell: Shell) -> int:
    pid = EmbeddedRedis(shell.folder / "data" / "redis").status().pid
    assert pid
    return pid


def goes_on(submitting: "subprocess.Popen[bytes]") -> None:
    """Write the other half, from a thread: nobody may read it before Redis is back."""

    def write() -> None:
        assert submitting.stdin
        try:
            submitting.stdin.writelines(LINES[ROWS // 2 :])
            submitting.stdin.close()
        except BrokenPipeError:  # it was ended
            pass

    Thread(target=write, daemon=True).start()


def test_a_redis_that_restarts_does_not_end_it(shell: Shell) -> None:
    with halfway(shell) as submitting:
        assert submitting.stderr
        assert submitting.stdout
        os.kill(redis_pid(shell), signal.SIGKILL)
        goes_on(submitting)
        assert b"Redis is away, waiting for it" in submitting.stderr.readline()
        shell.producer("redis", "start")
        job = submitting.stdout.read().decode().strip()
        said = submitting.stderr.read().decode()
        assert submitting.wait(30) == 0, said
    assert said == f"stdin: {ROWS} rows for model 'target'; job {job}\n"
    (found,) = json.loads(shell.producer("status", "--json"))
    assert (found["job_id"], found["rows"], found["state"]) == (job, ROWS, "queued")
    shell.fake()
    shell.producer("watch", job)
    assert_each_once(shell.results(job), [str(number) for number in range(ROWS)])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_ctrl_c_ends_it_while_it_waits(shell: Shell, how: signal.Signals) -> None:
    with halfway(shell) as submitting:
        assert submitting.stderr
        pid = redis_pid(shell)
        os.kill(pid, how)
        try:
            goes_on(submitting)
            if how is signal.SIGKILL:
                assert b"Redis is away, waiting for it" in submitting.stderr.readline()
            submitting.send_signal(signal.SIGINT)
            assert submitting.wait(10) == 130
            assert submitting.stderr.read() == b"interrupted: nothing was submitted\n"
        finally:
            if how is signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
