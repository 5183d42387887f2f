"""`python -m chaos.storm --rows 100000 --seed 1` (with tests/ on PYTHONPATH): exit code 0 only if nothing was found."""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from chaos.storm.report import is_clean, show
from chaos.storm.run import Plan, run_storm
from chaos.storm.schedule import RARE, Kind, digest, make_schedule
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
    parser.add_argument("--each", type=int, default=14, help="faults of each kind but the rare ones")
    parser.add_argument("--rare", type=int, default=1, help="of each of these: " + ", ".join(RARE))
    parser.add_argument("--least", type=int, default=10, help="of each kind that must have happened (rare ones: all)")
    parser.add_argument("--least-in-all", type=int, default=200, help="faults that must have happened")
    parser.add_argument("--keep", type=Path, help="a folder that is kept, with all logs, inputs and results")
    asked = parser.parse_args()

    counts = dict.fromkeys(Kind, asked.each) | dict.fromkeys(RARE, asked.rare)
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
        least=dict.fromkeys(Kind, asked.least) | dict.fromkeys(RARE, asked.rare),
        least_in_all=asked.least_in_all,
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
