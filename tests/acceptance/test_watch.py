"""Jobs as they are watched: `watch`, `list`, `status`, `errors`, names in place of ids, completion."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from shell import Shell, lines

SLOW = "--seconds-per-row 0.4"


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def engines(shell: Shell, job: str) -> list[dict[str, Any]]:
    """What workers noted of the job, once it is all there."""
    script = (
        "import asyncio, dataclasses, json, sys\n"
        "from producer.locate import redis_at\n"
        "from producer.record.provenance import engines\n"
        "async def main():\n"
        "    async with redis_at(None) as redis:\n"
        "        print(json.dumps([dataclasses.asdict(note) for note in await engines(redis, sys.argv[1])]))\n"
        "asyncio.run(main())\n"
    )
    return json.loads(shell.run("python", "-c", script, job).stdout)


def on_a_terminal(shell: Shell, *command: str, interrupt_at: str = "") -> tuple[int, str]:
    """Run a command on a terminal of its own; its exit code and all that it wrote. Ctrl-C once it says so."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(shell.folder)
        os.execvpe(command[0], command, shell.environment | {"TERM": "xterm-256color", "COLUMNS": "150"})
    said, deadline = "", time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 0.2)[0]:
                continue
            try:
                part = os.read(terminal, 65536)
            except OSError:  # it has ended
                break
            said += part.decode(errors="replace")
            if interrupt_at and interrupt_at in said:
                os.write(terminal, b"\x03")
                interrupt_at = ""
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def test_lines_where_there_is_no_terminal(shell: Shell) -> None:
    shell.fake(f"{SLOW} --fail-every 50")
    job = shell.submit(text=lines(400))["job_id"]
    ended = shell.run("producer", "watch", job)
    assert ended.returncode == 1
    first, *_, last = ended.stderr.splitlines()
    assert first.startswith(f"{job}: running, ")
    assert "/400 rows, " in first
    assert " rows/s, " in first
    assert first.endswith(" s left")
    assert last.startswith(f"{job}: completed, 400/400 rows, 8 failed, ")
    assert " tokens/s out, " in last
    assert ended.stdout == ""
    assert "accepted" not in ended.stderr  # nothing drafts here


def test_objects_for_programs(shell: Shell) -> None:
    shell.fake(SLOW)
    job = shell.submit(text=lines(240))["job_id"]
    ended = shell.run("producer", "watch", job, "--json")
    first, *_, last = objects(ended.stdout)
    assert (first["job_id"], first["state"], first["rows"]) == (job, "running", 240)
    assert 0 < first["done"] < 240
    assert first["rows_per_second"] == pytest.approx(40, rel=0.3)
    assert first["seconds_left"] == pytest.approx((240 - first["done"]) / first["rows_per_second"], abs=1)
    (worker,) = first["workers"]
    assert (worker["mode"], worker["state"]) == ("fake", "ready")
    assert worker["completion_tokens_per_second"] > 0
    assert (last["state"], last["done"], last["seconds_left"]) == ("completed", 240, None)


def test_a_bar_on_a_terminal_that_starts_at_what_is_there(shell: Shell) -> None:
    shell.fake(SLOW)
    job = shell.submit(text=lines(240))["job_id"]
    shell.await_done(job, 64)
    code, said = on_a_terminal(shell, "producer", "watch", job)
    assert code == 0
    rows = [int(part.split()[-1]) for part in said.split("/240 rows")[:-1]]
    assert rows[0] >= 64
    assert rows == sorted(rows)
    assert rows[-1] == 240
    assert "fake" in said
    assert f"{job}: completed, 240/240 rows, 0 failed, " in said
    assert said.rstrip().endswith("in")


def test_ctrl_c_stops_the_watching_and_not_the_job(shell: Shell) -> None:
    shell.fake(SLOW)
    job = shell.submit(text=lines(400))["job_id"]
    code, said = on_a_terminal(shell, "producer", "watch", job, interrupt_at="/400 rows")
    assert code == 130
    assert f"job {job} goes on; `producer watch {job}` watches it again" in said
    watching = subprocess.Popen(["producer", "watch", job], env=shell.environment, stderr=subprocess.PIPE, text=True)
    assert watching.stderr is not None
    assert watching.stderr.readline().startswith(f"{job}: running, ")
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=20)
    assert watching.returncode == 130
    assert told.splitlines()[-1].startswith(f"job {job} goes on")
    assert "Traceback" not in told
    shell.producer("watch", job)
    assert shell.status(job)["done"] == 400


def test_a_job_that_ended_at_once_is_no_wait(shell: Shell) -> None:
    job = shell.submit(text='{"prompt": 7}\n{"prompt": "a"}\n')["job_id"]
    shell.fake()
    shell.producer("watch", job, code=1)
    began = time.monotonic()
    ended = shell.run("producer", "watch", job)
    assert time.monotonic() - began < 3
    assert ended.stderr.startswith(f"{job}: completed, 2/2 rows, 1 failed, ")
    assert len(ended.stderr.splitlines()) == 1


def test_names_in_place_of_ids(shell: Shell) -> None:
    (shell.folder / "a.jsonl").write_text(lines(40))
    first = shell.submit("a.jsonl")["job_id"]
    for command in ("status", "pause", "resume", "errors"):
        shell.producer(command, "a.jsonl")
    worker = shell.fake()
    shell.producer("watch", "a.jsonl")
    worker.terminate()
    second, third = (shell.submit("a.jsonl", "--new")["job_id"] for _ in range(2))
    ended = shell.run("producer", "watch", "a.jsonl")
    assert ended.returncode == 2
    assert ended.stderr.startswith("producer: 3 jobs are called 'a.jsonl': ")
    for job in (first, second, third):
        assert job in ended.stderr
    shell.producer("cancel", second)
    assert shell.status("a.jsonl")["job_id"] == third  # only one of them has not ended
    shell.producer("cancel", "a.jsonl")
    shell.producer("purge", first, second)
    shell.producer("purge", "a.jsonl")
    gone = shell.run("producer", "status", "a.jsonl")
    assert (gone.returncode, gone.stderr.count("\n")) == (2, 1)
    assert "producer list" in gone.stderr


def test_list(shell: Shell) -> None:
    old = shell.submit(text=lines(2), file="-")["job_id"]
    new = shell.submit("-", "--name", "new\x1b[31m one", text=lines(3))["job_id"]
    shell.producer("cancel", old)
    listed = shell.producer("list").splitlines()
    assert [line.split()[0] for line in listed] == ["job", old, new]
    assert "new?[31m one" in listed[2]
    assert listed == shell.producer("status").splitlines()
    assert [job["job_id"] for job in json.loads(shell.producer("list", "--json", "--state", "queued"))] == [new]
    both = json.loads(shell.producer("list", "--json", "--state", "queued", "--state", "cancelled"))
    assert [job["job_id"] for job in both] == [old, new]
    assert shell.run("producer", "list", "--state", "odd").returncode == 2


def test_errors(shell: Shell) -> None:
    shell.fake("--fail-every 10")
    text = "\n".join((lines(100).strip(), "{broken", '{"prompt": "a", "custom_id": "x", "logprobs": "no"}'))
    job = shell.submit(text=text)["job_id"]
    shell.producer("watch", job, code=1)
    said = shell.producer("errors", job).splitlines()
    assert said[0] == f"12 of 102 rows of job {job} failed"
    assert said[1] == "10 fake_failure"
    assert said[2].startswith("  line ")
    assert said[7] == "  and 5 more (--limit 10 shows all)"
    assert any(line.startswith("  line 101: ") for line in said)
    assert any("line 102 (x): " in line for line in said)
    assert len(shell.producer("errors", job, "--limit", "10").splitlines()) == 1 + 3 + 12
    told = json.loads(shell.producer("errors", job, "--json"))
    assert (told["job_id"], told["failed"], told["missing"]) == (job, 12, 0)
    assert told["by_code"]["fake_failure"] == 10
    assert sorted(error["line"] for error in told["errors"]) == [*range(10, 101, 10), 101, 102]
    assert all(error["message"] for error in told["errors"])
    assert shell.run("bash", "-c", f"producer errors {job} | head -1").returncode == 0
    shell.producer("errors", job, "--limit", "-1", code=2)


def test_errors_that_were_consumed_are_said_to_be_gone(shell: Shell) -> None:
    shell.fake("--fail-every 10")
    job = shell.submit(text=lines(20))["job_id"]
    shell.run("producer", "results", job, "--consume", "-o", "out.jsonl")
    said = shell.producer("errors", job).splitlines()
    assert said[0] == f"2 of 20 rows of job {job} failed"
    assert said[1].startswith("2 were consumed")
    assert json.loads(shell.producer("errors", job, "--json"))["missing"] == 2


def test_a_job_of_a_moment_is_noted_by_its_worker_soon(shell: Shell) -> None:
    worker = shell.fake("--fail-every 8")
    job, other = (shell.submit(text=lines(16, tag))["job_id"] for tag in "ab")
    for each in (job, other):
        shell.producer("watch", each, code=1)
    deadline = time.monotonic() + 2
    while sum(note["rows"] for note in engines(shell, job)) < 16:
        assert time.monotonic() < deadline
    (note,) = engines(shell, job)
    assert (note["mode"], note["model"], note["rows"], note["failed"]) == ("fake", "target", 16, 2)
    assert note["lossless"]
    assert worker.terminate() == 0
    shell.fake()
    shell.producer("retry", job)
    shell.producer("watch", job)
    time.sleep(1)
    assert sorted(note["rows"] for note in engines(shell, job)) == [2, 16]


def test_completion(shell: Shell) -> None:
    job = shell.submit("-", "--name", "named", text=lines(2))["job_id"]

    def completed(words: str, **more: str) -> str:
        asked = {"_PRODUCER_COMPLETE": "complete_bash", "COMP_WORDS": f"producer {words}"}
        asked["COMP_CWORD"] = str(len(asked["COMP_WORDS"].split(" ")) - 1)
        ended = subprocess.run(
            ["producer"], env=shell.environment | asked | more, capture_output=True, text=True, timeout=20, check=False
        )
        assert ended.stderr == ""
        return ended.stdout

    assert "watch" in completed("wa").split()
    assert {job, "named"} <= set(completed("watch ").split())
    assert completed("cancel nam").split() == ["named"]
    assert completed("status zzz").split() == []
    assert completed("watch ", MINEDRAFT_REDIS_URL="redis://127.0.0.1:1").split() == []
    assert completed("watch ", MINEDRAFT_REDIS_URL="nonsense").split() == []
    shown = shell.run(
        "bash", "-c", "producer --show-completion; true"
    ).stdout  # typer looks which shell it is started by
    assert "_PRODUCER_COMPLETE" in shown


def test_a_worker_that_is_killed_and_another_that_goes_on_are_seen(shell: Shell, tmp_path: Path) -> None:
    first = shell.fake(SLOW)
    job = shell.submit(text=lines(320))["job_id"]
    with (tmp_path / "watched").open("wb") as stream:
        watching = subprocess.Popen(
            ["producer", "watch", job, "--json"], env=shell.environment, stdout=stream, stderr=subprocess.DEVNULL
        )
        shell.await_done(job, 32)
        first.kill()
        shell.fake("--seconds-per-row 0.1")
        assert watching.wait(60) == 0
    seen = objects((tmp_path / "watched").read_text())
    assert seen[-1]["done"] == 320
    assert len({worker["worker_id"] for moment in seen for worker in moment["workers"]}) == 2
