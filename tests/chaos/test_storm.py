"""A short storm: every fault but the longest once. `make chaos` runs a long one."""

import tempfile
from pathlib import Path

import pytest
from chaos.storm.commands import CANCELLED_ROWS, URGENT_ROWS
from chaos.storm.report import is_clean, show
from chaos.storm.run import Plan, run_storm
from chaos.storm.schedule import Kind, make_schedule
from rich.console import Console


@pytest.mark.timeout(240)
def test_every_row_is_answered_once_whatever_breaks(tmp_path: Path) -> None:
    counts = dict.fromkeys(Kind, 1) | {Kind.REDIS_AWAY: 0}
    plan = Plan(
        rows=3000,
        jobs=4,
        seed=1,
        workers=4,
        rows_at_once=16,
        seconds_per_row=0.8,
        schedule=make_schedule(1, counts, 4),
        say=print,
        least=counts,
    )
    # Not below the test's folder: the names of Unix sockets must be short.
    with tempfile.TemporaryDirectory(prefix="storm-") as scratch:
        temp, folder = Path(scratch) / "tmp", Path(scratch) / "run"
        temp.mkdir()
        folder.mkdir()
        outcome = run_storm(plan, folder, temp)
    show("a short storm", outcome, Console(width=120))
    assert outcome.audit.rows == plan.rows + URGENT_ROWS + CANCELLED_ROWS
    assert 0 < outcome.audit.dropped < CANCELLED_ROWS
    assert outcome.done.total() == len(plan.schedule)
    assert is_clean(outcome)
