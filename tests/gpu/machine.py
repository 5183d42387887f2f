"""Part `machine` of tier A: what there is, so that the rest of a report means something."""

import argparse
import os
import platform
import shutil
import subprocess
from typing import Any

import torch
from gpu.devices import worker_on
from gpu.parts import Checks

_QUERY = "index,name,memory.total,memory.used,driver_version,compute_mode,mig.mode.current"


def run(checks: Checks, options: argparse.Namespace) -> None:
    for name, value in facts().items():
        checks.report(name, value, why="to read the rest by")
    if options.device == "cpu":
        checks.report("GPUs", "a dry run without any", why="what needs one is left out")
        return
    for index in range(torch.cuda.device_count()):
        worker = worker_on(f"cuda:{index}")
        numbers = torch.arange(1000, device=worker.device)
        total = int(numbers.sum())
        checks.judge(f"cuda:{index} computes", total, "499500", ok=total == 499_500, why="all else needs it")


def facts() -> dict[str, Any]:
    """About this machine. Does not use any GPU: who does takes memory of it as long as it lives."""
    there = torch.cuda.is_available()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if there else None,
        "gpus": gpus() if there else [],
        "cores": len(os.sched_getaffinity(0)),
    }


def gpus() -> list[str]:
    """What the driver says of each, what others use of it included."""
    if shutil.which("nvidia-smi") is None:
        return ["nvidia-smi is not there"]
    asked = subprocess.run(
        ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return (asked.stdout or asked.stderr).splitlines()
