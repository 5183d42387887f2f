"""Parts of a check: chosen, limited in time, judged, reported, each in a process of its own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu.parts import (
    NOT_PASSED,
    PASSED,
    Check,
    Checks,
    Outcome,
    Part,
    Verdict,
    chosen,
    exit_code,
    how_it_ended,
    read_checks,
    summary_lines,
    time_for,
    verdict_of,
)

#: Parts that do well, badly, nothing, die and hang, and one that leaves a process behind.
SCRIPT = """
import os, subprocess, sys, tempfile, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from gpu.parts import Part, parser, chosen, run_all, run_one

def good(checks, options):
    checks.judge("one", 1, "2", ok=True, why="because")
    checks.report("another", 3, why="to know")
def bad(checks, options):
    checks.judge("one", 3, "2", ok=False, why="because")
def idle(checks, options):
    pass
def dies(checks, options):
    checks.judge("one", 1, "2", ok=True, why="because")
    os.kill(os.getpid(), 9)
def hangs(checks, options):
    checks.judge("one", 1, "2", ok=True, why="because")
    child = subprocess.Popen(["sleep", "600"])
    (options.folder / "child").write_text(str(child.pid))
    time.sleep(600)

PARTS = [Part(f.__name__, "about " + f.__name__, f, 6.0 if f is hangs else 60.0, 0.5)
         for f in (good, bad, idle, dies, hangs)]
options = parser("a try", PARTS, 60.0).parse_args()
if options.only_part:
    sys.exit(run_one(PARTS, options))
folder = Path(os.environ["FOLDER"])
sys.exit(run_all(chosen(PARTS, options.parts), options, script=__file__, folder=folder, facts={{"machine": "this"}}))
"""
TESTS = Path(__file__).parents[2]


def check(verdict: Verdict) -> Check:
    return Check("what", "1", "2", "why", verdict)


def part(name: str = "one", limit_s: float = 10, needs_s: float = 4) -> Part:
    return Part(name, "about", lambda *_: None, limit_s, needs_s)


def outcome(verdict: Verdict) -> Outcome:
    return Outcome("part", verdict, 1.0, "", [check(verdict)])


def run(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, dict]]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(TESTS)))
    report = tmp_path / "report.json"
    ended = subprocess.run(
        [sys.executable, script, "--report", report, *arguments],
        env={**os.environ, "FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(report.read_text()) if report.exists() else {"parts": []}
    return ended, {"run": told, **{it["name"]: it for it in told["parts"]}}


@pytest.mark.parametrize(("left", "given"), [(100, 10), (10, 10), (7, 7), (4, 4), (3.9, None), (-1, None)])
def test_a_part_gets_what_is_left_or_is_left_out(left: float, given: float | None) -> None:
    assert time_for(part(limit_s=10, needs_s=4), left) == given


@pytest.mark.parametrize(
    ("verdicts", "ended", "verdict"),
    [
        ([Verdict.PASS, Verdict.REPORT], "", Verdict.PASS),
        ([Verdict.REPORT], "", Verdict.REPORT),
        ([Verdict.PASS, Verdict.FAIL], "", Verdict.FAIL),
        ([Verdict.PASS], "killed", Verdict.FAIL),
        ([], "", Verdict.FAIL),
    ],
)
def test_a_part_is_judged_by_its_checks_and_its_end(verdicts: list[Verdict], ended: str, verdict: Verdict) -> None:
    assert verdict_of(map(check, verdicts), ended) == verdict


def test_how_a_part_ended() -> None:
    assert how_it_ended(0, 9) == ""
    assert how_it_ended(3, 9) == "ended with exit code 3"
    assert how_it_ended(-9, 9) == "killed by signal 9"
    assert how_it_ended(None, 9) == "ended after 9 s, its limit"


def test_a_run_passes_when_all_parts_ran_and_none_failed() -> None:
    assert exit_code([outcome(Verdict.PASS), outcome(Verdict.REPORT)]) == PASSED
    for bad in (Verdict.FAIL, Verdict.SKIPPED):
        assert exit_code([outcome(Verdict.PASS), outcome(bad)]) == NOT_PASSED


def test_the_last_lines_say_what_came_of_it() -> None:
    *_, last = summary_lines([outcome(Verdict.PASS), outcome(Verdict.PASS), outcome(Verdict.FAIL)])
    assert last == "NOT PASSED: checks: 2 PASS, 1 FAIL"


def test_parts_are_chosen_by_name_in_their_own_order() -> None:
    parts = [part("a"), part("b"), part("c")]
    assert chosen(parts, "") == parts
    assert chosen(parts, "c,a") == [parts[0], parts[2]]
    with pytest.raises(ValueError, match="no such part: d, e"):
        chosen(parts, "d,a,e")


def test_a_check_is_one_line_that_says_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks = Checks(tmp_path / "checks")
    checks.judge("a ping", "3 ms", "5 ms", ok=True, why="a step waits for it")
    checks.report("a size", 7, why="to know")
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "  PASS    a ping | measured: 3 ms | limit: 5 ms | why: a step waits for it",
        "  REPORT  a size | measured: 7 | why: to know",
    ]
    assert read_checks(tmp_path / "checks") == checks.all


def test_the_checks_of_a_process_that_was_killed_in_the_middle_of_a_line_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "checks"
    checks = Checks(file)
    checks.judge("a", "1", "2", ok=False, why="so")
    with file.open("a") as more:
        more.write('{"what": "half')
    assert read_checks(file) == checks.all
    assert read_checks(tmp_path / "none") == []


def test_a_run_in_which_all_is_well(tmp_path: Path) -> None:
    ended, report = run(tmp_path, "--parts", "good")
    assert ended.returncode == PASSED, ended.stderr
    assert report["run"]["passed"] is True
    assert report["run"]["machine"] == "this"
    assert [it["verdict"] for it in report["good"]["checks"]] == ["PASS", "REPORT"]
    assert "PASSED: checks: 1 PASS, 1 REPORT" in ended.stdout


def test_what_goes_wrong_in_a_part_costs_that_part_only(tmp_path: Path) -> None:
    began = time.monotonic()
    ended, report = run(tmp_path)
    assert ended.returncode == NOT_PASSED
    assert time.monotonic() - began < 100
    assert {name: it["verdict"] for name, it in report.items() if name != "run"} == {
        "good": "PASS",
        "bad": "FAIL",
        "idle": "FAIL",
        "dies": "FAIL",
        "hangs": "FAIL",
    }
    assert report["dies"]["ended"] == "killed by signal 9"
    assert report["hangs"]["ended"] == "ended after 6 s, its limit"
    assert len(report["hangs"]["checks"]) == 1, "what it found before is kept"
    child = Path("/proc", (tmp_path / "child").read_text())
    deadline = time.monotonic() + 5
    while child.exists() and time.monotonic() < deadline:  # an orphan is reaped by whoever adopts it
        if "Z" in (child / "stat").read_text().rpartition(")")[2].split()[0]:
            break
        time.sleep(0.05)
    assert not child.exists() or "Z" in (child / "stat").read_text().rpartition(")")[2]


def test_parts_without_time_are_left_out_and_said_to_be(tmp_path: Path) -> None:
    ended, report = run(tmp_path, "--budget", "0.4", "--parts", "good,bad")
    assert ended.returncode == NOT_PASSED
    assert report["good"]["verdict"] == report["bad"]["verdict"] == "SKIPPED"
    assert "left out for time" in ended.stdout
