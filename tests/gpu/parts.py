"""Checks on a machine with GPUs, in parts: each part a process of its own, under a limit, told in lines and as JSON.

A part that hangs, or dies, costs its own time only, and says so. Standard library alone: it must run where little is.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

#: How a run ends: all parts ran and nothing failed, something failed or was left out for time, nothing can run here.
PASSED, NOT_PASSED, IMPOSSIBLE = 0, 1, 2
#: How often a part's process is looked at (seconds).
_LOOK_S = 0.05


class Verdict(StrEnum):
    """What came of a check, a part or a run."""

    PASS = "PASS"
    FAIL = "FAIL"
    REPORT = "REPORT"
    """Measured, and not judged."""
    SKIPPED = "SKIPPED"
    """Left out for time."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    what: str
    measured: str
    limit: str
    why: str
    verdict: Verdict

    def line(self) -> str:
        """All of it, for people."""
        limit = f" | limit: {self.limit}" if self.limit else ""
        return f"  {self.verdict:<7} {self.what} | measured: {self.measured}{limit} | why: {self.why}"


class Checks:
    """Where a part says what it looks at: printed at once, and left in a file for the process that judges."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.all: list[Check] = []

    def judge(self, what: str, measured: object, limit: str, *, ok: bool, why: str) -> None:
        """Something passes or fails."""
        self._add(Check(what, str(measured), limit, why, Verdict.PASS if ok else Verdict.FAIL))

    def report(self, what: str, measured: object, *, why: str, limit: str = "") -> None:
        """Something is measured, and not judged; `limit` is what it would be judged by elsewhere."""
        self._add(Check(what, str(measured), limit, why, Verdict.REPORT))

    def _add(self, check: Check) -> None:
        self.all.append(check)
        print(check.line(), flush=True)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(check)) + "\n")


@dataclass(frozen=True, slots=True)
class Part:
    """Checks that belong together.

    Attributes:
        name: by which it is chosen.
        about: what it is for, in a line.
        run: does it, in a process of its own; gets the run's options.
        limit_s: it is ended after so long (seconds).
        needs_s: with less time than this left it is not begun.
    """

    name: str
    about: str
    run: Callable[[Checks, argparse.Namespace], None]
    limit_s: float
    needs_s: float


@dataclass(slots=True)
class Outcome:
    """What came of a part."""

    name: str
    verdict: Verdict
    seconds: float
    ended: str
    checks: list[Check] = field(default_factory=list)


def time_for(part: Part, left_s: float) -> float | None:
    """How long a part may take when so much time is left for all; None: it is not begun."""
    return min(part.limit_s, left_s) if left_s >= part.needs_s else None


def how_it_ended(code: int | None, limit_s: float) -> str:
    """How a part's process ended, in words; empty when nothing is wrong. None: it was ended at its limit."""
    if code is None:
        return f"ended after {limit_s:.0f} s, its limit"
    if code < 0:
        return f"killed by signal {-code}"
    return f"ended with exit code {code}" if code else ""


def verdict_of(checks: Iterable[Check], ended: str) -> Verdict:
    """What came of a part that checked this and ended so. One that checked nothing has failed."""
    verdicts = {check.verdict for check in checks}
    if ended or not verdicts or Verdict.FAIL in verdicts:
        return Verdict.FAIL
    return Verdict.PASS if Verdict.PASS in verdicts else Verdict.REPORT


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Of a run: a part that was left out has not passed."""
    bad = {Verdict.FAIL, Verdict.SKIPPED}
    return NOT_PASSED if bad & {outcome.verdict for outcome in outcomes} else PASSED


def summary_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The end of a run, for people."""
    lines = [f"{it.verdict:<7} {it.name} ({it.seconds:.0f} s){': ' + it.ended if it.ended else ''}" for it in outcomes]
    counts = {verdict: sum(check.verdict is verdict for it in outcomes for check in it.checks) for verdict in Verdict}
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return [*lines, f"{'PASSED' if exit_code(outcomes) == PASSED else 'NOT PASSED'}: checks: {said or 'none'}"]


def read_checks(file: Path) -> list[Check]:
    """What a part's process has left, as far as it came."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # the last line of a process that was killed
            entry = json.loads(line)
            found.append(Check(**{**entry, "verdict": Verdict(entry["verdict"])}))
    return found


def parser(about: str, parts: Sequence[Part], budget_s: float) -> argparse.ArgumentParser:
    """Of what all tiers can be told."""
    names = [part.name for part in parts]
    options = argparse.ArgumentParser(description=about)
    options.add_argument("--report", type=_new_file, help="write all results to this file, as JSON")
    options.add_argument("--parts", default="", help=f"only these, separated by commas: {', '.join(names)}")
    options.add_argument("--budget", type=float, default=budget_s, help="seconds for all parts together (%(default)g)")
    options.add_argument("--only-part", choices=names, help=argparse.SUPPRESS)
    options.add_argument("--checks", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return options


def _new_file(text: str) -> Path:
    """A file that can be written: it would be a pity to find out in the end."""
    file = Path(text)
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written")
    return file


def chosen(parts: Sequence[Part], text: str) -> list[Part]:
    """The parts that are asked for, in their own order.

    Raises:
        ValueError: one is not there.
    """
    names = [name for name in text.split(",") if name]
    unknown = set(names) - {part.name for part in parts}
    if unknown:
        raise ValueError(f"no such part: {', '.join(sorted(unknown))}")
    return [part for part in parts if not names or part.name in names]


def run_one(parts: Sequence[Part], options: argparse.Namespace) -> int:
    """Do one part in this process, which was started for it."""
    (part,) = (part for part in parts if part.name == options.only_part)
    part.run(Checks(options.checks), options)
    return 0


def run_all(
    parts: Sequence[Part], options: argparse.Namespace, *, script: str, folder: Path, facts: dict[str, Any]
) -> int:
    """Do parts, one after the other, and say what came of them.

    Args:
        parts: in this order.
        options: of `parser`, and the tier's own.
        script: what does one part, told `--only-part`.
        folder: new, for what parts leave for each other and for this process.
        facts: about the machine, for the report.

    Returns:
        The exit code.
    """
    for ended_by in (signal.SIGTERM, signal.SIGHUP):  # as by Ctrl-C: what a part has started ends, too
        signal.signal(ended_by, _interrupt)
    began, outcomes = time.monotonic(), []
    for part in parts:
        left = options.budget - (time.monotonic() - began)
        limit = time_for(part, left)
        print(f"{part.name}: {part.about}", flush=True)
        if limit is None:
            outcomes.append(Outcome(part.name, Verdict.SKIPPED, 0.0, f"left out for time: {left:.0f} s were left"))
        else:
            outcomes.append(_run(part, limit, script, folder))
        print(f"  = {outcomes[-1].verdict} {outcomes[-1].ended}".rstrip(), flush=True)
    print(*summary_lines(outcomes), sep="\n", flush=True)
    if options.report is not None:
        _write(options.report, facts, outcomes, time.monotonic() - began)
    return exit_code(outcomes)


def _interrupt(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _run(part: Part, limit_s: float, script: str, folder: Path) -> Outcome:
    checks, began = folder / f"{part.name}.checks", time.monotonic()
    command = [sys.executable, script, *sys.argv[1:], "--only-part", part.name]
    process = subprocess.Popen(
        [*command, "--checks", str(checks), "--folder", str(folder)], start_new_session=True, stdin=subprocess.DEVNULL
    )
    try:
        in_time = _await_end(process, limit_s)
    finally:
        _end_session(process)
    found, ended = read_checks(checks), how_it_ended(process.returncode if in_time else None, limit_s)
    return Outcome(part.name, verdict_of(found, ended), time.monotonic() - began, ended, found)


def _await_end(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether it ended in time. It is not reaped: until then its process group's number is nobody else's."""
    deadline = time.monotonic() + limit_s
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End what a part has started, itself included: a kernel that waits for a peer waits for ever."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _write(file: Path, facts: dict[str, Any], outcomes: Sequence[Outcome], seconds: float) -> None:
    passed = exit_code(outcomes) == PASSED
    whole = {"passed": passed, "seconds": round(seconds, 1), **facts, "parts": [asdict(it) for it in outcomes]}
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
