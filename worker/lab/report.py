"""What `worker bench` found, as a table for people and as JSON. Nothing is printed here."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from worker.lab.result import Bench, Result, Scenario, Spread, Turn
from worker.strategies.seam import Strategy

#: What the others are compared with: as many rows verified together as with two batches, one stage after the other.
BASE = "sd(m)"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


#: Measures of the table: a turn's attribute, its label, how it is written, and whether with its spread.
_ROWS: tuple[tuple[str, str, Callable[[float], str], bool], ...] = (
    ("steady_tokens_per_s", "tokens/s, steady", _number, True),
    ("tokens_per_s", "tokens/s, whole run", _number, True),
    ("ms_per_token", "ms a token, of a row", _number, True),
    ("verify_ms", "V, ms", _number, False),
    ("draft_ms", "t, ms", _number, False),
    ("step_ms", "step, ms", _number, False),
    ("step_over_longer", "step / max(t, V)", "{:.3f}".format, False),
    ("hidden_share", "hidden share", "{:.1%}".format, False),
    ("verifier_idle", "target idle, steady", "{:.1%}".format, False),
    ("verifier_idle_whole", "target idle, whole", "{:.1%}".format, False),
    ("drafter_idle", "drafter idle, steady", "{:.1%}".format, False),
    ("drafter_idle_whole", "drafter idle, whole", "{:.1%}".format, False),
    ("lane_idle_whole", "longer lane's idle", "{:.1%}".format, False),
    ("acceptance", "acceptance", "{:.1%}".format, False),
    ("verified_drafts", "drafts verified, a row and call", "{:.2f}".format, False),
    ("in_two", "calls in two batches", "{:.1%}".format, False),
    ("in_one", "calls in one batch", "{:.1%}".format, False),
    ("ahead", "calls ahead", "{:.1%}".format, False),
    ("imbalance", "imbalance", "{:.3f}".format, False),
    ("work_imbalance", "imbalance of work", "{:.3f}".format, False),
    ("skewed_share", "skewed pairs", "{:.1%}".format, False),
    ("steady_steps", "steady steps", "{:,.0f}".format, False),
    ("tail_s", "tail, s", _number, False),
    ("same_texts", "texts equal to ar's", "{:.1%}".format, False),
    ("lost_records", "records lost", "{:,.0f}".format, False),
)
#: What the table's limit is.
_LIMIT = f"\nlimit: (V + t) / max(V, t), steady V and t of {BASE}"
#: Those that are compared with `BASE`.
_COMPARED = ("steady_tokens_per_s", "tokens_per_s")


def heading(bench: Bench) -> str:
    """What this is about, in a line; it says so where devices are imagined, and where it is no result."""
    said = f"{bench.pair}: {bench.rows:,} rows of {bench.max_tokens:,} tokens"
    if bench.least_tokens < bench.most_tokens:
        said += f" in the mean ({bench.least_tokens:,} to {bench.most_tokens:,} asked for)"
    said = f"VIRTUAL devices: {said}" if bench.virtual else said
    return said if bench.quiet else f"NO RESULT, the machine was not quiet: {bench.disturbance}\n{said}"


def footing(bench: Bench) -> str:
    """Where and how often it was measured, in a line."""
    turns = max((len(result.turns) for result in bench.results), default=0)
    where = f"computed on {bench.machine}, devices imagined" if bench.virtual else bench.machine
    return f"{where}; {f'medians of {turns} turns' if turns > 1 else 'one turn'}"


def table(bench: Bench) -> Table:
    """A column for each scenario, a row for each measure that any of them has; 120 characters hold six scenarios.

    Where there are several turns, the least and the most stand below the median.
    """
    base = bench.find(BASE)
    limit = most_gain(base) if base and any(one.scenario.overlaps for one in bench.results) else None
    title, caption = escape(heading(bench)), escape(footing(bench) + (_LIMIT if limit else ""))
    made = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    made.add_column("", no_wrap=True)
    for result in bench.results:
        made.add_column(result.scenario.name, justify="right", no_wrap=True)
    for label, value in _SETTINGS:
        made.add_row(label, *(value(result.scenario) for result in bench.results), style="dim")
    made.add_section()
    for measure, label, form, spread in _ROWS:
        spreads = [result.spread(measure) for result in bench.results]
        if not any(spreads):
            continue
        made.add_row(label, *(_cell(one, form, spread=spread) for one in spreads))
        if base is not None and measure in _COMPARED:
            ratios = [ratio(result, base, measure) for result in bench.results]
            made.add_row(f"  x {BASE}", *(_cell(one, "{:.2f}".format, spread=spread) for one in ratios), style="bold")
        if limit is not None and measure == "tokens_per_s":
            shown = [limit if result.scenario.overlaps else None for result in bench.results]
            made.add_row("  limit of that", *(_cell(one, "{:.2f}".format, spread=spread) for one in shown))
        if measure == "acceptance":
            _add_positions(made, bench.results)
    return made


def ratio(result: Result, base: Result, measure: str) -> Spread | None:
    """A measure over that of another scenario, turn by turn: what drifts from turn to turn hits both.

    Args:
        result: the scenario.
        base: the one it is compared with.
        measure: a turn's attribute.
    """
    both = [
        (getattr(one, measure), getattr(other, measure)) for one, other in zip(result.turns, base.turns, strict=False)
    ]
    ratios = [one / other for one, other in both if one is not None and other]
    return Spread(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


def most_gain(base: Result) -> Spread | None:
    """How many times faster a scenario that drafts and verifies one after the other could be if it did both at once.

    (V + t) / max(V, t) of its own steady part; None where it has no V or no t.
    """
    both = [(turn.verify_ms, turn.draft_ms) for turn in base.turns if turn.verify_ms and turn.draft_ms]
    gains = [(v + t) / max(v, t) for v, t in both if v and t]
    return Spread(statistics.median(gains), min(gains), max(gains)) if gains else None


def to_json(bench: Bench) -> str:
    """As JSON on several lines; `from_json` reads it."""
    return json.dumps(asdict(bench), ensure_ascii=False, indent=1)


def from_json(text: str) -> Bench:
    """What `to_json` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        fields = json.loads(text)
        bench = Bench(**{**fields, "results": tuple(_result(one) for one in fields["results"])})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no result of `worker bench`: {error}") from None
    if not bench.results:
        raise ValueError("there are no results in it")
    return bench


_SETTINGS: tuple[tuple[str, Callable[[Scenario], str]], ...] = (
    ("rows in flight", lambda scenario: f"{scenario.in_flight:,}"),
    ("verified together", lambda scenario: f"{scenario.batch:,}"),
    ("drafts a step", lambda scenario: str(scenario.drafts)),
    ("devices", lambda scenario: str(scenario.devices)),
)


def _result(fields: dict[str, Any]) -> Result:
    turns = (Turn(**{**turn, "acceptance_at": tuple(turn["acceptance_at"])}) for turn in fields["turns"])
    scenario = fields["scenario"]
    strategy = Strategy(**scenario.get("strategy", {}))  # there was one way once
    return Result(Scenario(**{**scenario, "strategy": strategy}), tuple(turns))


def _add_positions(made: Table, results: Sequence[Result]) -> None:
    """Acceptance at each position, of those whose predecessors were accepted."""
    most = max((len(turn.acceptance_at) for result in results for turn in result.turns), default=0)
    for position in range(most):
        cells = []
        for result in results:
            found = [turn.acceptance_at[position] for turn in result.turns if len(turn.acceptance_at) > position]
            cells.append(f"{statistics.median(found):.1%}" if found else "")
        made.add_row(f"  draft {position + 1}, reached", *cells, style="dim")


def _cell(found: Spread | None, form: Callable[[float], str], *, spread: bool) -> str:
    if found is None:
        return ""
    text = form(found.median)
    if spread and found.least != found.most:
        text += f"\n{form(found.least)}-{form(found.most)}"
    return text
