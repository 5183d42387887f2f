"""Plans, and their comparison with what was measured, as tables and lines. Nothing is printed here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from worker.lab.plan import Copies, Plan
from worker.lab.predict import Prediction
from worker.lab.result import Bench, Mode, Scenario

_COLUMNS = ("scenario", "k", "in flight", "devices", "V ms", "t ms", "step ms", "tokens a cycle")
_RATES = ("steady tokens/s", "tokens/s", "ms a token", "tokens/s a device")


def titled(title: str, *, virtual: bool) -> str:
    """The title of anything about these devices; imagined ones never look real."""
    return f"virtual: {title}" if virtual else title


def plan_table(plan: Plan, title: str, *, virtual: bool, every: bool = False) -> Table:
    """A plan as a table.

    Args:
        plan: the plan.
        title: what it is for.
        virtual: whether its devices are imagined.
        every: a row for each number of drafts, not only for the best.
    """
    rows = (_cells(prediction) for prediction in (plan.every if every else plan.best))
    return _table(titled(title, virtual=virtual), (*_COLUMNS, *_RATES), rows)


def devices_table(ways: Sequence[Copies], devices: int, *, virtual: bool) -> Table:
    """What so many devices could do (`Plan.on`)."""
    rows = (
        (
            f"{way.copies} x {way.prediction.scenario.name}",
            str(way.prediction.scenario.drafts),
            str(way.copies * way.prediction.scenario.in_flight),
            str(way.idle_devices),
            f"{way.tokens_per_s:,.0f}",
            f"{way.prediction.ms_per_token:.1f}",
        )
        for way in ways
    )
    columns = ("copies", "k", "in flight", "devices left over", "tokens/s", "ms a token")
    return _table(titled(f"{devices} devices", virtual=virtual), columns, rows)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A scenario's throughput, predicted and measured, in the steady part.

    Attributes:
        scenario: which.
        predicted: tokens/s.
        measured: tokens/s.
        fitted: whether its own V and t went into the prediction, which then only shows that the parts add up.
    """

    scenario: Scenario
    predicted: float
    measured: float
    fitted: bool = False

    @property
    def deviation(self) -> float:
        """Of the prediction, as a share of what was measured: 0.1 is 10 % too much."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """Predictions beside a bench.

    Attributes:
        pair: what was measured.
        virtual: whether its devices are imagined.
        quiet: whether the machine was; else this is no result.
        ratios: one for each scenario that was both predicted and measured.
    """

    pair: str
    virtual: bool
    quiet: bool
    ratios: tuple[Ratio, ...]

    @property
    def worst(self) -> float | None:
        """The deviation that is furthest from 0; None when nothing could be compared."""
        return max((ratio.deviation for ratio in self.ratios), key=abs, default=None)


def compare(bench: Bench, predictions: Iterable[Prediction], *, fitted: Sequence[Mode] = ()) -> Comparison:
    """Put predictions beside what was measured.

    Args:
        bench: what was measured.
        predictions: of the bench's own scenarios (`predict_bench`).
        fitted: the modes whose measurements went into them.
    """
    by_scenario = {prediction.scenario: prediction for prediction in predictions}
    ratios = tuple(
        Ratio(
            result.scenario,
            by_scenario[result.scenario].steady_tokens_per_s,
            measured,
            fitted=result.scenario.mode in fitted,
        )
        for result in bench.results
        if result.scenario in by_scenario and (measured := result.median("steady_tokens_per_s"))
    )
    return Comparison(bench.pair, bench.virtual, bench.quiet, ratios)


def comparison_table(comparison: Comparison) -> Table:
    """The comparison as a table, with the worst deviation last."""
    rows = [
        (
            ratio.scenario.name,
            str(ratio.scenario.drafts),
            f"{ratio.predicted:,.0f}",
            f"{ratio.measured:,.0f}",
            f"{ratio.deviation:+.1%}{' (own V, t)' if ratio.fitted else ''}",
        )
        for ratio in comparison.ratios
    ]
    if comparison.worst is not None:
        rows.append(("worst", "", "", "", f"{comparison.worst:+.1%}"))
    title = titled(f"plan against bench, {comparison.pair}", virtual=comparison.virtual)
    note = "" if comparison.quiet else " (the machine was not quiet: no result)"
    return _table(title + note, ("scenario", "k", "predicted tokens/s", "measured tokens/s", "deviation"), rows)


def _cells(one: Prediction) -> tuple[str, ...]:
    scenario = one.scenario
    return (
        scenario.name,
        str(scenario.drafts),
        str(scenario.in_flight),
        str(scenario.devices),
        f"{one.verify_ms:.1f}",
        f"{one.draft_ms:.1f}",
        f"{one.step_ms:.1f}",
        f"{one.tokens_a_cycle:.2f}",
        f"{one.steady_tokens_per_s:,.0f}",
        f"{one.tokens_per_s:,.0f}",
        f"{one.ms_per_token:.1f}",
        f"{one.tokens_per_s_per_device:,.0f}",
    )


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Names to the left, numbers to the right."""
    table = Table(title=escape(title), title_justify="left", box=None, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    return table
