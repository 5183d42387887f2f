"""The command `worker plan`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from worker.lab import plan_report, report
from worker.lab.measured import MeasuredError, measured_fleet
from worker.lab.plan import Fleet, fleet_of, plan, predict_bench
from worker.lab.predict import Workload
from worker.lab.profiles import ProfileError, names, profile
from worker.lab.result import Bench

_FOR = """\
Predicts what plain decoding, speculative decoding and two batches give, from published devices or from what
`worker bench --json FILE` has measured, and says when two batches do not pay.
"""
#: What a step takes beside V and t, measured with imagined devices on two cores (ms); on a GPU's host it is less.
_HOST_MS = 0.0


class PlanError(Exception):
    """What was asked for cannot be planned; the message is one line for the user."""


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(
        prog="worker plan", description=_FOR, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--virtual", metavar="PROFILE", help=f"imagined devices: {', '.join(names())}")
    source.add_argument("--bench", type=Path, metavar="FILE", help="what `worker bench --json` has left")
    made.add_argument("--in-flight", type=_count, help="rows at once, 2m (default: the bench's, or 64)")
    made.add_argument("-k", type=_range, default=range(1, 6), help="drafts to try, as 1-5 (default) or 3")
    made.add_argument("--devices", type=_count, help="how many you have: what they could do as copies of something")
    made.add_argument("--prompt-tokens", type=int, default=200, help="of a row, in the mean (default: 200)")
    made.add_argument("--output-tokens", type=_count, help="of an answer (default: the bench's, or 256)")
    made.add_argument(
        "--host-ms", type=float, default=_HOST_MS, help="with --virtual: of a step that nothing hides (default: 0)"
    )
    made.add_argument("--every", action="store_true", help="a row for each number of drafts, not for the best only")
    made.add_argument("--check", action="store_true", help="with --bench: the plan beside what was measured")
    return made


def run(argv: Sequence[str]) -> int:
    """Predict and print; 2 when it cannot be done."""
    asked = parser().parse_args(argv)
    # A table has its width, whatever the terminal's.
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        bench = _read(asked.bench) if asked.bench else None
        fleet, title, virtual = _fleet(asked, bench)
        workload = Workload(asked.prompt_tokens, asked.output_tokens or (bench.max_tokens if bench else 256))
        if asked.check:
            if bench is None:
                raise PlanError("--check needs --bench")
            comparison = plan_report.compare(bench, predict_bench(bench, fleet, workload))
            console.print(plan_report.comparison_table(comparison))
            return 0
        in_flight = asked.in_flight or (max(one.scenario.in_flight for one in bench.results) if bench else 64)
        found = plan(fleet, in_flight=in_flight, workload=workload, drafts=asked.k)
    except (PlanError, ProfileError, MeasuredError, OSError) as error:
        sys.stderr.write(f"worker plan: {' '.join(str(error).split())}\n")
        return 2
    console.print(plan_report.plan_table(found, title, virtual=virtual, every=asked.every))
    if asked.devices:
        console.print(plan_report.devices_table(found.on(asked.devices), asked.devices, virtual=virtual))
    for sentence in found.advice:
        console.print(sentence, highlight=False)
    return 0


def _fleet(asked: argparse.Namespace, bench: Bench | None) -> tuple[Fleet, str, bool]:
    if bench is not None:
        devices = min(one.scenario.devices for one in bench.results)
        return measured_fleet(bench, devices), bench.pair, bench.virtual
    host = asked.host_ms
    imagined = profile(asked.virtual, max(asked.k))
    return fleet_of(imagined, {"ar": host, "sd": host, "psd": host}), asked.virtual, True


def _read(path: Path) -> Bench:
    try:
        return report.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlanError(f"{path}: {error}") from None


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    drafts = range(_count(first), _count(last or first) + 1)
    if not drafts:
        raise ValueError(text)
    return drafts
