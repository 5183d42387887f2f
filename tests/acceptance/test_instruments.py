"""The instruments as the README has them."""

import json
import os
from pathlib import Path

import pytest
from shell import Shell

from worker.lab import report

PROFILE = "flat:25,15"


def test_a_plan_takes_a_moment_and_no_engine(shell: Shell) -> None:
    found = shell.run("worker", "plan", "--virtual", "qwen3-32b+1.7b", "--in-flight", "64", "--devices", "10")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("virtual: qwen3-32b+1.7b")
    assert "psd(2m)" in found.stdout
    assert "do not pay" in found.stdout


def test_the_worker_says_what_it_can_do(shell: Shell) -> None:
    found = shell.run("worker", "--help")
    assert found.returncode == 0
    assert all(f"worker {command} [flags]" in found.stdout for command in ("run", "bench", "trace", "plan"))
    for command in ("bench", "trace", "plan"):
        assert shell.run("worker", command, "--help").stdout.startswith(f"usage: worker {command}")


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two devices need two cores")
def test_imagined_devices_from_bench_to_plan_and_trace(shell: Shell, tmp_path: Path) -> None:
    """What must be reached on 4 + 1 devices with V = 25 ms, with room for whatever else the machine does."""
    numbers, kept = tmp_path / "bench.json", tmp_path / "kept"
    flags = ["--virtual", PROFILE, "-m", "32", "-k", "3", "--rows", "256", "--tokens", "64", "--turns", "2"]
    flags += ["--scenarios", "ar,sd(m),psd(2m),psd(redis)", "--json", str(numbers), "--keep", str(kept)]
    ended = shell.run("worker", "bench", *flags, "--png", str(tmp_path / "bench.png"), seconds=800)
    assert ended.returncode in (0, 1), ended.stderr  # 1: another program was at work, too
    assert "VIRTUAL devices" in ended.stdout
    bench = report.from_json(numbers.read_text())
    ar, sd, psd, redis = (bench.find(name) for name in ("ar", "sd(m)", "psd(2m)", "psd(redis)"))
    assert ar is not None
    assert sd is not None
    assert psd is not None
    assert redis is not None
    print(ended.stdout)
    assert psd.median("same_texts") == redis.median("same_texts") == 1
    assert (psd.median("step_ms") or 0) - (ar.median("step_ms") or 0) < 2
    assert (psd.median("steady_tokens_per_s") or 0) / (sd.median("steady_tokens_per_s") or 1) > 0.9 * (25 + 15) / 25
    assert (redis.median("tokens_per_s") or 0) / (psd.median("tokens_per_s") or 1) > 0.93

    planned = shell.run("worker", "plan", "--bench", numbers, "--check")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("virtual: plan against bench")
    drawn = shell.run("worker", "trace", "--load", kept / "m32" / "psd(2m).npz", "--json", tmp_path / "trace.json")
    assert drawn.returncode == 0, drawn.stderr
    assert json.loads((tmp_path / "trace.json").read_text())["otherData"]["virtual"]
