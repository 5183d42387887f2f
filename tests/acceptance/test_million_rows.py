"""What a million rows may take: `make bench-producer`, held against its limits."""

import json
import subprocess
import sys
from typing import Any

import pytest
from shell import ROOT

pytestmark = [pytest.mark.full, pytest.mark.cores, pytest.mark.timeout(1200)]

#: At most so many seconds, and so much memory of the producer's in MB.
LIMITS = {"submit": (30, 150), "results, order input": (45, 150), "results, order done": (45, 150)}


@pytest.fixture(scope="module")
def parts() -> dict[str, dict[str, Any]]:
    ended = subprocess.run([sys.executable, ROOT / "ops" / "bench_producer.py"], capture_output=True, check=True)
    return {part["what"]: part for part in json.loads(ended.stdout)["parts"]}


@pytest.mark.parametrize("what", LIMITS)
def test_a_million_rows(parts: dict[str, dict[str, Any]], what: str) -> None:
    seconds, peak_mb = LIMITS[what]
    assert parts[what]["seconds"] < seconds
    assert parts[what]["peak_mb"] < peak_mb
