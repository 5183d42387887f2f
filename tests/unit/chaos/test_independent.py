"""The audit judges the programs: it must not take their word for anything."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]


def test_the_audit_uses_nothing_of_what_it_audits() -> None:
    script = (
        "import chaos.storm.audit, leftovers, chaos.storm.oracle, chaos.storm.purged, sys;"
        "print(*{name.split('.')[0] for name in sys.modules} & {'producer', 'worker'})"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == []
