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
    return late


def show(title: str, outcome: Outcome, console: Console) -> None:
    """Print it all."""
    counted = Table("", "", title=title, show_header=False)
    audit, measures = outcome.audit, outcome.measures
    for name in ("rows", "results", "errors", "refused", "lost", "doubled", "wrong", "counters", "keys", "others"):
        counted.add_row(name, f"{getattr(audit, name):,}")
    counted.add_section()
    counted.add_row("faults", f"{outcome.done.total()} ({outcome.idle} when no row was left)")
    for kind, times in sorted(outcome.done.items()):
        counted.add_row(f"  {kind}", str(times))
    counted.add_section()
    counted.add_row("shards of a killed worker claimed again", _spread(measures.reclaimed))
    counted.add_row("  when nothing else was broken", _spread(measures.reclaimed_calm))
    counted.add_row("rows end again when Redis is back", _spread(measures.again))
    counted.add_row("duration", f"{outcome.seconds:.0f} s")
    console.print(counted)
    for line in [*audit.findings, *broken_promises(outcome)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print("clean" if is_clean(outcome) else "NOT CLEAN")


def is_clean(outcome: Outcome) -> bool:
    """Nothing was found and every promise of time was kept."""
    return outcome.audit.clean and not broken_promises(outcome)


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "never measured"
    ordered = sorted(seconds)
    return f"{len(ordered)} times: median {ordered[len(ordered) // 2]:.1f} s, most {ordered[-1]:.1f} s"
