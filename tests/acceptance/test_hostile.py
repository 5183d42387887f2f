"""Input that means harm, or was made by chance: every line has its outcome, and nothing else happens."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from fuzz_lines import fuzzed_lines, giants, hostile_names
from redis import Redis
from shell import Shell, Worker

from producer.record.keys import key
from producer.server.embedded import EmbeddedRedis

#: Twenty times the lines may cost this much more memory: half of what their text alone would take.
_SLACK_KIB = 13 * 1024

#: Lines nearly as long as intake reads cost a few times their length, in the worker those that are in flight together.
_GIANT_KIB = 256 * 1024

#: What a terminal would obey, and what JSON forbids; a results file has one newline at the end of each line.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

#: Runs a command and writes down its peak memory; a child of pytest itself would begin with pytest's own peak.
_MEASURED = """
import os, subprocess, sys
command = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(command.pid, 0)
open(sys.argv[1], "w").write(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def _file(path: Path, lines: Iterable[bytes]) -> int:
    """Writes it; how many non-blank lines there are between its newlines."""
    path.write_bytes(b"\n".join(lines) + b"\n")
    return sum(1 for line in path.read_bytes().split(b"\n") if line.strip())


def _submitted(shell: Shell, path: Path) -> tuple[dict[str, Any], int]:
    """What `producer submit` said, and its peak memory in KiB."""
    peak = shell.folder / "peak"
    ended = shell.run(sys.executable, "-c", _MEASURED, peak, "producer", "submit", path, "--json")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return json.loads(ended.stdout), int(peak.read_text())


def _peak(worker: Worker) -> int:
    """The worker's peak memory so far in KiB."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def _outcomes(shell: Shell, job: str) -> Iterator[dict[str, Any]]:
    path = shell.folder / f"{job}.jsonl"
    shell.producer("results", job, "-o", path, "--order", "input")
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            assert line.endswith("\n")
            assert not _CONTROL.search(line[:-1])
            yield json.loads(line)


def _run_and_audit(shell: Shell, path: Path, rows: int) -> tuple[int, int]:
    """Submits a file with so many non-blank lines, and looks at every outcome: how many, and the producer's peak."""
    job, peak = _submitted(shell, path)
    assert job["rows"] == rows
    watched = shell.run("producer", "watch", job["job_id"])
    assert watched.returncode == 1, watched.stderr
    answered, refused_lines = 0, []
    for outcome in _outcomes(shell, job["job_id"]):
        error = outcome["error"]
        assert (error is None) != (outcome["response"] is None)
        if error is None:
            answered += 1
        else:
            assert error["code"]
            assert error["message"].isprintable()
            refused_lines.append(error["line"])
    assert answered + len(refused_lines) == rows
    assert refused_lines == sorted(set(refused_lines)), "two errors of one line"
    status = shell.status(job["job_id"])
    assert (status["state"], status["done"], status["failed"]) == ("completed", rows, len(refused_lines))
    return answered, peak


def test_twenty_thousand_fuzzed_lines_have_an_outcome_each(shell: Shell) -> None:
    worker = shell.fake()
    peaks = []
    for count in (1_000, 20_000):
        path = shell.folder / f"fuzzed-{count}.jsonl"
        rows = _file(path, fuzzed_lines(count, seed=5))
        assert rows > 0.95 * count
        answered, producer_peak = _run_and_audit(shell, path, rows)
        assert 0.2 < answered / rows < 0.8, "the lines have become tame, or all are refused"
        peaks.append((producer_peak, _peak(worker)))
    assert peaks[1][0] < peaks[0][0] + _SLACK_KIB, peaks
    assert peaks[1][1] < peaks[0][1] + _SLACK_KIB, peaks
    path = shell.folder / "giants.jsonl"
    answered, producer_peak = _run_and_audit(shell, path, _file(path, giants()))
    assert answered == 2
    assert producer_peak < peaks[0][0] + _GIANT_KIB
    assert _peak(worker) < peaks[0][1] + _GIANT_KIB
    assert "Traceback" not in worker.text()
    assert worker.terminate() == 0


def _on_a_terminal(shell: Shell, *command: str) -> str:
    """Everything that a command writes where both of its streams are a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, env=shell.environment, cwd=shell.folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        written = b""
        try:
            while piece := os.read(ours, 1 << 16):
                written += piece
        except OSError:  # EIO: the other end is closed
            pass
        os.close(ours)
        assert process.wait(60) in (0, 1, 2)
    return written.decode(errors="replace")


#: What rich itself writes: colours, cursor up, clear line, hide and show the cursor.
_RICH = re.compile(r"\x1b\[(?:[0-9;]*m|[0-9]*A|2K|\?25[lh])")

_OWNED = "\x1b]0;owned\x07\x1b[2J\x9b31mx\u202e"


def _assert_harmless(shown: str) -> None:
    left = _CONTROL.search(_RICH.sub("", shown).replace("\r", "").replace("\n", ""))
    assert left is None, repr(shown)
    assert "\u202e" not in shown
    assert "\x1b[2J" not in shown


def test_hostile_names_never_become_files_and_never_reach_a_terminal(shell: Shell) -> None:
    shell.fake()
    names = hostile_names(Random(3))
    rows = [{"prompt": "x", "custom_id": name} for name in names]
    file = shell.folder / f"{_OWNED}.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    before = {str(path) for path in shell.folder.rglob("*")}
    _assert_harmless(_on_a_terminal(shell, "producer", "submit", str(file)))
    (job,) = [job["job_id"] for job in json.loads(shell.producer("status", "--json"))]
    for command in (("watch", job), ("status",), ("status", job), ("status", _OWNED), ("results", _OWNED)):
        _assert_harmless(_on_a_terminal(shell, "producer", *command))
    answer = "\x7f\x9b31m\u202e"
    with Redis.from_url(EmbeddedRedis(shell.folder / "data" / "redis").url) as redis:
        line = json.loads(redis.hget(key("results", job), "0"))
        line["response"]["body"]["choices"][0]["text"] = answer  # as a model may say
        redis.hset(key("results", job), "0", json.dumps(line, ensure_ascii=False))
    for place in ("-", "/dev/stdout"):
        shown = _on_a_terminal(shell, "producer", "results", job, "-o", place)
        _assert_harmless(shown)
        read = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
        assert sorted(line["custom_id"] for line in read) == sorted(names), "and nothing is lost by it"
        assert answer in [line["response"]["body"]["choices"][0]["text"] for line in read]
    shell.run("producer", "submit", file, "--new", "--name", _OWNED, "--model", _OWNED)
    _assert_harmless(_on_a_terminal(shell, "producer", "status"))
    twice = shell.folder / "twice.jsonl"
    twice.write_text(f'{{"prompt":"x","custom_id":"{names[0]}"}}\n' * 2)
    _assert_harmless(_on_a_terminal(shell, "producer", "submit", str(twice)))
    for output in (_OWNED, f"{names[0]}/{_OWNED}", f"-{_OWNED}"):
        _assert_harmless(_on_a_terminal(shell, "producer", "results", job, "--output", output))
    assert sorted(line["custom_id"] for line in shell.results(job)) == sorted(names)
    new = {Path(path).name for path in {str(path) for path in shell.folder.rglob("*")} - before}
    new = {name.removesuffix(".manifest.json") for name in new}
    assert {name for name in new if "redis" not in name} <= {"twice.jsonl", f"{job}.jsonl", _OWNED, f"-{_OWNED}"}
