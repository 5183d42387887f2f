"""`python -m chaos.storm --rows 100000 --seed 1` (with tests/ on PYTHONPATH): exit code 0 only if nothing was found."""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from chaos.storm.report import is_clean, show
from chaos.storm.run import Plan, run_storm
from chaos.storm.schedule import Kind, digest, make_schedule
from rich.console import Console


def main() -> int:
    """One storm from the command line."""
    parser = argparse.ArgumentParser(prog="storm", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rows-at-once", type=int, default=16, help="of each worker")
    parser.add_argument("--seconds-per-row", type=float, default=0.33)
    parser.add_argument("--each", type=int, default=15, help="faults of each kind but the long one")
    parser.add_argument("--away", type=int, default=1, help="how often Redis is away for a minute")
    parser.add_argument("--keep", type=Path, help="a folder that is kept, with all logs, inputs and results")
    asked = parser.parse_args()

    counts = dict.fromkeys(Kind, asked.each) | {Kind.REDIS_AWAY: asked.away}
    began = time.monotonic()
    plan = Plan(
        rows=asked.rows,
        jobs=asked.jobs,
        seed=asked.seed,
        workers=asked.workers,
        rows_at_once=asked.rows_at_once,
        seconds_per_row=asked.seconds_per_row,
        schedule=make_schedule(asked.seed, counts, asked.workers),
        say=lambda what: print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to end, it leaves nothing, either
    # Short paths: the names of Unix sockets must be.
    with tempfile.TemporaryDirectory(prefix="storm-") as scratch:
        temp = Path(scratch) / "tmp"
        temp.mkdir()
        folder = asked.keep or Path(scratch) / "run"
        folder.mkdir(parents=True)
        outcome = run_storm(plan, folder, temp)
    show(f"storm {plan.seed}, schedule {digest(plan.schedule)}", outcome, Console(width=120))
    return 0 if is_clean(outcome) else 1


if __name__ == "__main__":
    sys.exit(main())
