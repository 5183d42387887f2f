"""What a storm came to, for people."""

from collections.abc import Sequence

from chaos.storm.measure import AGAIN_LIMIT, RECLAIM_LIMIT
from chaos.storm.run import Outcome
from rich.console import Console
from rich.table import Table


def broken_promises(outcome: Outcome) -> list[str]:
    """The promises of time that were not kept."""
    measures = outcome.measures
    late = [
        (f"the shards of a killed worker waited {worst:.1f} s, more than {RECLAIM_LIMIT:g} s")
        for worst in measures.reclaimed_calm
        if worst > RECLAIM_LIMIT
    ]
    late += [
        f"Redis was back for {worst:.1f} s, more than {AGAIN_LIMIT:g} s, before a row ended"
        for worst in measures.again
        if worst > AGAIN_LIMIT
    ]
    late += [f"the shard {shard} of a killed worker was never claimed again" for shard in measures.never]
    if measures.kills_in_calm and not measures.reclaimed_calm:
        late.append("workers were killed in calm, but no shard was seen to be claimed again")
    if measures.returns and not measures.again:
        late.append("Redis was back, but no row was seen to end")
    return late


def too_few(outcome: Outcome) -> list[str]:
    """What the storm was asked to do and did less often: it has shown nothing then."""
    kinds = [
        f"too few faults: {kind} {outcome.done[kind]} times, at least {least} were asked for"
        for kind, least in outcome.least.items()
        if outcome.done[kind] < least
    ]
    total = outcome.done.total()
    if total < outcome.least_in_all:
        kinds.append(f"too few faults: {total} in all, at least {outcome.least_in_all} were asked for")
    return kinds


def show(title: str, outcome: Outcome, console: Console) -> None:
    """Print it all."""
    counted = Table("", "", title=title, show_header=False)
    audit, measures = outcome.audit, outcome.measures
    for name in (
        "rows",
        "results",
        "errors",
        "refused",
        "dropped",
        "lost",
        "doubled",
        "wrong",
        "counters",
        "keys",
        "others",
    ):
        counted.add_row(name, f"{getattr(audit, name):,}")
    counted.add_section()
    counted.add_row("faults", str(outcome.done.total()))
    counted.add_row("not counted: no row was left, or nothing to break", str(outcome.missed.total()))
    for kind, times in sorted(outcome.done.items()):
        counted.add_row(f"  {kind}", str(times))
    counted.add_section()
    counted.add_row("shards of a killed worker claimed again", _spread(measures.reclaimed))
    counted.add_row("  when nothing else was broken", _spread(measures.reclaimed_calm))
    counted.add_row("rows end again when Redis is back", _spread(measures.again))
    counted.add_row("duration", f"{outcome.seconds:.0f} s")
    console.print(counted)
    for line in [*audit.findings, *broken_promises(outcome), *too_few(outcome)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print("clean" if is_clean(outcome) else "NOT CLEAN")


def is_clean(outcome: Outcome) -> bool:
    """Nothing was found, every promise of time was kept, and the storm was as hard as asked."""
    return outcome.audit.clean and not broken_promises(outcome) and not too_few(outcome)


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "never measured"
    ordered = sorted(seconds)
    return f"{len(ordered)} times: median {ordered[len(ordered) // 2]:.1f} s, most {ordered[-1]:.1f} s"
