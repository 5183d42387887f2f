"""The command `worker plan`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from worker import plan_file
from worker.lab import flags, grid, plan_report, report
from worker.lab.measured import MeasuredError, measured_fleet
from worker.lab.plan import Fleet, Plan, fleet_of, plan, predict_bench
from worker.lab.plan_placement import placement
from worker.lab.predict import Workload
from worker.lab.profile import Profile
from worker.lab.profiles import ProfileError, names, profile
from worker.lab.result import Bench, Mode

_FOR = """\
Predicts what plain decoding, speculative decoding and two batches give, from published devices or from what
`worker bench --json FILE` has measured, and says when two batches do not pay.
"""


#: Characters that the widest table takes.
_WIDTH = 140


class PlanError(Exception):
    """What was asked for cannot be planned; the message is one line for the user."""


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(
        prog="worker plan", description=_FOR, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument("--virtual", metavar="PROFILE", help=f"imagined devices: {', '.join(names())}")
    made.add_argument("--bench", type=Path, metavar="FILE", help="what `worker bench --json` has left")
    made.add_argument("--in-flight", type=flags.count, help="rows at once, 2m (default: the bench's, or 64)")
    made.add_argument("-k", type=flags.span, help="drafts to try, as 3 or 1-5 (default; of a flat profile, 1)")
    made.add_argument(
        "--devices", type=flags.count, help="how many you have: what they could do as copies of something"
    )
    made.add_argument("--prompt-tokens", type=flags.tokens, default=200, help="of a row, in the mean (default: 200)")
    made.add_argument("--output-tokens", type=flags.count, help="of an answer (default: the bench's, or 256)")
    made.add_argument(
        "--host-ms",
        type=flags.ms,
        help="with --virtual: of a step that nothing hides (default: of --bench, its ar's; else 0)",
    )
    made.add_argument("--every", action="store_true", help="a row for each number of drafts, not for the best only")
    made.add_argument(
        "--check",
        action="store_true",
        help="what a bench measured beside what its V and t predict, or with --virtual, the profile it ran on",
    )
    made.add_argument("--save", type=Path, metavar="FILE", help="leave what is fastest for `worker run --plan FILE`")
    made.add_argument(
        "--grid",
        action="store_true",
        help="how --mode auto does against every fixed choice on a grid of imagined devices; minutes, on all cores",
    )
    return made


def run(argv: Sequence[str]) -> int:
    """Predict and print; 2 when it cannot be done."""
    asked = parser().parse_args(argv)
    console = Console(width=_WIDTH)  # whatever the terminal's: a table that is cut says nothing
    if asked.grid:
        console.print(grid.table(grid.explore_all(grid.cells())))
        return 0
    try:
        bench = _read(asked.bench) if asked.bench else None
        fleet, title, virtual = _fleet(asked, bench)
        workload = Workload(asked.prompt_tokens, asked.output_tokens or (bench.max_tokens if bench else 256))
        if asked.check:
            if bench is None:
                raise PlanError("--check needs --bench")
            fitted: tuple[Mode, ...] = () if asked.virtual else ("ar", "sd", "psd")
            comparison = plan_report.compare(bench, predict_bench(bench, fleet, workload), fitted=fitted)
            console.print(plan_report.comparison_table(comparison))
            return 0
        in_flight = asked.in_flight or (max(one.scenario.in_flight for one in bench.results) if bench else 64)
        found = plan(fleet, in_flight=in_flight, workload=workload, drafts=_drafts(asked, bench))
        if asked.save:
            plan_file.write(asked.save, _placement(found, asked.devices))
    except (PlanError, ProfileError, MeasuredError, OSError) as error:
        sys.stderr.write(f"worker plan: {' '.join(str(error).split())}\n")
        return 2
    console.print(plan_report.plan_table(found, title, virtual=virtual, every=asked.every))
    if asked.devices:
        console.print(plan_report.devices_table(found.on(asked.devices), asked.devices, virtual=virtual))
    for sentence in found.advice:
        console.print(plan_report.titled(sentence, virtual=virtual), highlight=False, markup=False)
    if virtual and asked.virtual:
        console.print(f"virtual: {profile(asked.virtual).assumption}", highlight=False, markup=False)
    return 0


def _placement(found: Plan, devices: int | None) -> plan_file.PlannedPlacement:
    try:
        return placement(found, devices)
    except ValueError as error:
        raise PlanError(str(error)) from None


def _fleet(asked: argparse.Namespace, bench: Bench | None) -> tuple[Fleet, str, bool]:
    """The fleet, what it is called, and whether it is imagined; a profile's host time may be that of a bench."""
    if asked.virtual:
        imagined = profile(asked.virtual, max(_drafts(asked, bench)))
        host = asked.host_ms if asked.host_ms is not None else _host_ms(bench, imagined)
        return fleet_of(imagined, {"ar": host, "sd": host, "psd": host}), asked.virtual, True
    if bench is None:
        raise PlanError("needs --virtual PROFILE or --bench FILE")
    if asked.host_ms is not None:
        raise PlanError("--host-ms goes with --virtual")
    title = bench.pair if bench.quiet else f"{bench.pair} (NO RESULT, the machine was not quiet)"
    return measured_fleet(bench, min(one.scenario.devices for one in bench.results)), title, bench.virtual


def _host_ms(bench: Bench | None, imagined: Profile) -> float:
    """What plain decoding's step took beside the profile's V."""
    ar = bench.find("ar") if bench else None
    step_ms = ar.median("step_ms") if ar else None
    if ar is None or step_ms is None:
        return 0.0
    return max(0.0, step_ms - imagined.verify_ms(ar.scenario.in_flight, 0))


def _drafts(asked: argparse.Namespace, bench: Bench | None) -> range:
    """The numbers to try; of a flat profile, whose t is for one of them, the bench's."""
    flat = asked.virtual is not None and asked.virtual.startswith("flat:")
    usual = max((one.scenario.drafts for one in bench.results), default=0) if bench else 0
    drafts: range = asked.k or (range(max(1, usual), max(1, usual) + 1) if flat else range(1, 6))
    if flat and len(drafts) > 1:
        raise PlanError("the t of a flat profile is for a number of drafts: -k with one number")
    return drafts


def _read(path: Path) -> Bench:
    try:
        return report.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlanError(f"{path}: {error}") from None
