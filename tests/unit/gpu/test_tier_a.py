"""What runs on machines with GPUs runs here on a CPU that stands for one: the same code, so that it does not rot."""

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from datetime import timedelta
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from gpu import order, packing
from gpu.clock import Seen, errors_ms
from gpu.devices import OnCpu
from gpu.links import DRAFTER, VERIFIER, Meeting, meeting
from gpu.order import DRAFTS, ROWS, latest_effect_ms, wrong_drafts
from gpu.parts import Checks, Verdict
from gpu.together import Failed, together
from timelines import MS, two_batches
from unit.gpu.rank_tasks import dies, fails, hangs, twice

from worker.minedraft.packets import scatter
from worker.minedraft.stages import DRAFTER as DRAFTER_RING
from worker.minedraft.stages import RECORD, Stage, verifier_name

SCRIPT = Path(order.__file__).with_name("tier_a.py")


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_dry_run_passes_in_all_its_parts_without_vllm(tmp_path: Path) -> None:
    """A machine to try the CUDA code on may have torch alone."""
    (tmp_path / "vllm.py").write_text("raise ImportError('not here')")
    report = tmp_path / "report.json"
    ended = run("--device", "cpu", "--report", report, PYTHONPATH=str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(report.read_text())
    assert (told["tier"], told["dry_run"], told["passed"]) == ("A", True, True)
    assert told["torch"] == torch.__version__
    verdicts = {part["name"]: part["verdict"] for part in told["parts"]}
    passed = dict.fromkeys(["packing", "clock", "link", "order"], "PASS")
    assert verdicts == {"machine": "REPORT", **passed}
    judged = [check for part in told["parts"] for check in part["checks"] if check["verdict"] == "PASS"]
    assert len(judged) == 6 + 3 * len(order.RATIOS)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_whatever_ends_a_tier_ends_what_it_has_started(by: signal.Signals, tmp_path: Path) -> None:
    """A connection that is lost, a job that runs out of time, Ctrl-C."""
    tier = subprocess.Popen(
        [sys.executable, SCRIPT, "--device", "cpu", "--parts", "order"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    process = psutil.Process(tier.pid)
    deadline = time.monotonic() + 60
    while len(started := process.children(recursive=True)) < 3:  # the part, and its two sides
        assert time.monotonic() < deadline
        time.sleep(0.05)
    tier.send_signal(by)
    assert tier.wait(20) != 0
    _, left = psutil.wait_procs(started, timeout=10)
    assert not left
    assert not list(tmp_path.glob("tier-*"))


def test_a_report_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    for report in (tmp_path, tmp_path / "not there" / "report.json"):
        ended = run("--device", "cpu", "--report", report)
        assert ended.returncode == 2
        assert f"{report} cannot be written" in ended.stderr


def test_without_a_gpu_it_says_so_in_a_line() -> None:
    ended = run()
    assert ended.returncode == 2
    why = "torch sees none here" if torch.version.cuda else "this Python's PyTorch is one for CPUs (GPU_PYTHON=...)"
    assert ended.stdout == f"tier A needs a GPU, and {why}; --device cpu is a dry run without one\n"
    assert ended.stderr == ""


def test_a_part_that_is_not_there_is_refused() -> None:
    ended = run("--device", "cpu", "--parts", "packing,other")
    assert ended.returncode == 2
    assert "no such part: other" in ended.stderr


def verdicts_of_packing(tmp_path: Path) -> list[Verdict]:
    checks = Checks()
    packing.run(checks, Namespace(device="cpu", seed=0, folder=tmp_path))
    return [check.verdict for check in checks.all]


def test_packing_that_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts_of_packing(tmp_path) == [Verdict.PASS, Verdict.PASS, Verdict.REPORT]

    def all_rows(table: torch.Tensor, slots: np.ndarray, rows: np.ndarray, drafts: torch.Tensor) -> None:
        scatter(table, slots, np.arange(len(slots)), drafts)

    monkeypatch.setattr(packing, "scatter", all_rows)
    assert verdicts_of_packing(tmp_path)[1] == Verdict.FAIL
    monkeypatch.setattr(packing, "accepted", lambda valid, drafted: valid - 1)
    assert verdicts_of_packing(tmp_path)[0] == Verdict.FAIL


def verified(calls: int) -> np.ndarray:
    """What calls find in the table when all is well."""
    table = np.zeros((calls, ROWS, DRAFTS), np.int64)
    for call in range(3, calls + 1):
        slots = np.arange(call % 2, 2 * ROWS, 2)
        table[call - 1] = ((call - 2) * 1000 + slots + DRAFTS)[:, None] + np.arange(1, DRAFTS + 1)
    return table


def test_drafts_of_another_call_are_wrong() -> None:
    fine = verified(9)
    assert wrong_drafts(fine) == 0
    late, swapped, one = fine.copy(), fine.copy(), fine.copy()
    late[6] = fine[4]
    swapped[5, [0, 1]] = fine[5, [1, 0]]
    one[8, 3, 2] += 1
    assert [wrong_drafts(it) for it in (late, swapped, one)] == [ROWS * DRAFTS, 2 * DRAFTS, 1]


def test_a_packet_that_comes_before_it_was_sent_is_seen() -> None:
    records = two_batches()
    verifier, drafter = records[verifier_name(0)], records[DRAFTER_RING]
    assert latest_effect_ms(verifier, drafter) > 0
    drafter["end"][5, Stage.RECV] = verifier["begin"][5, Stage.SEND] - 1_500_000
    assert latest_effect_ms(verifier, drafter) == pytest.approx(-1.5)


def test_work_that_begins_before_it_was_asked_for_is_seen() -> None:
    records = np.zeros(3, RECORD)
    records["begin"][:, Stage.FORWARD], records["end"][:, Stage.FORWARD] = [10 * MS, 20 * MS, 30 * MS], 40 * MS
    seen = Seen(np.array([9, 19, 29]) * MS, np.full(3, 41 * MS), np.zeros(3), None)
    assert errors_ms(records, seen) == (-1.0, -1.0)
    records["begin"][1, Stage.FORWARD] = 17 * MS
    records["end"][2, Stage.FORWARD] = 44 * MS
    assert errors_ms(records, seen) == (2.0, 3.0)
    with pytest.raises(AssertionError, match="2 records of 3 calls"):
        errors_ms(records[:2], seen)


def test_times_are_judged_where_each_side_has_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    records = two_batches(verify=25, draft=22)
    sides = records[verifier_name(0)], records[DRAFTER_RING]
    for wall_ms, verdict in ((26.5, Verdict.PASS), (30.0, Verdict.FAIL)):
        checks = Checks()
        order._judge(checks, 1.0, wall_ms, 0, *sides, judged=True)
        (step,) = (check for check in checks.all if "longer" in check.what)
        assert step.verdict == verdict
    checks = Checks()
    order._judge(checks, 1.0, 30.0, 1, *sides, judged=False)
    assert {check.verdict for check in checks.all if "step" in check.what} == {Verdict.REPORT}
    assert checks.all[0].verdict == Verdict.FAIL, "wrong drafts are wrong everywhere"
    capsys.readouterr()


def test_two_processes_return_or_say_why_not() -> None:
    assert together(twice, 4, limit_s=60) == [8, 9]
    for target, said in ((fails, "rank 1: ValueError: no"), (dies, "rank 1 died")):
        with pytest.raises(Failed, match=said):
            together(target, limit_s=60)
    began = time.monotonic()
    with pytest.raises(Failed, match="rank 0 did not end within 3 s"):
        together(hangs, limit_s=3)
    assert time.monotonic() - began < 20


def test_a_cpu_is_never_waited_for() -> None:
    worker = OnCpu()
    worker.mark().wait()
    worker.finish()
    began = time.monotonic()
    worker.heavy(20)()
    assert time.monotonic() - began >= 0.02


def test_a_meeting_is_a_new_one_each_time(tmp_path: Path) -> None:
    one, other = (meeting(tmp_path, "host", 3, "cpu") for _ in range(2))
    assert one.address != other.address
    assert one.devices == ("cpu", "cpu")


class End:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_the_drafter_leaves_when_the_verifier_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.links.DEADLINE", timedelta(seconds=0.2))
    where, end = Meeting(str(tmp_path / "link"), "host", 3, ("cpu", "cpu")), End()
    with pytest.raises(TimeoutError):
        where.leave(DRAFTER, end)
    assert not end.closed
    where.leave(VERIFIER, End())
    where.leave(DRAFTER, end)
    assert end.closed
