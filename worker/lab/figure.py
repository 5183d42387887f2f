"""What `worker bench` found as a picture: how fast each scenario is, and what its steps are made of."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from worker.lab.report import BASE, footing, heading, ratio
from worker.lab.result import Bench, Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES, _DPI = (14.0, 7.0), 110
_INK, _FAINT, _GRID, _ALARM = "#1f2933", "#66717e", "#e6e9ed", "#b42318"
_DARK, _LIGHT, _DRAFT, _STEP = "#2f6db5", "#b3d0ee", "#d0702a", "#9aa5b1"
_TITLE_PT, _LABEL_PT, _TEXT_PT = 15, 12, 10.5
#: What a line of the title holds.
_TITLE_CHARS = 110
#: Of the two bars of a scenario, and how far their middles are from the scenario's.
_HEIGHT, _ASIDE = 0.34, 0.18
#: Left edges of the two panels, and their width, lower edge and height.
_LEFT, _RIGHT, _PANEL = 0.085, 0.575, (0.4, 0.1, 0.68)

#: The bars of the left panel and of the right one, by a turn's attribute: colour and meaning.
_RATES = {"steady_tokens_per_s": (_DARK, "steady part"), "tokens_per_s": (_LIGHT, "whole run")}
_TIMES = {
    "verify_ms": (_DARK, "V, to verify a batch"),
    "draft_ms": (_DRAFT, "t, to draft for one"),
    "step_ms": (_STEP, "step"),
}


def draw(bench: Bench, path: Path) -> None:
    """Draw throughput beside the times of a step into a PNG file of 1540 x 770 pixels. Needs matplotlib.

    Imagined devices, and numbers of a machine that was not quiet, are marked in the title and across the picture.

    Args:
        bench: what was found.
        path: of the file.

    Raises:
        ImportError: matplotlib is missing.
        OSError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=_INCHES, dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    color = _INK if bench.quiet else _ALARM
    title = "\n".join(line for part in heading(bench).splitlines() for line in wrap(part, _TITLE_CHARS))
    figure.text(0.02, 0.97, title, size=_TITLE_PT, weight="bold", color=color, va="top", parse_math=False)
    figure.text(0.02, 0.02, footing(bench), size=_TEXT_PT, color=_FAINT)
    width, low, height = _PANEL
    _draw_rates(figure.add_axes((_LEFT, low, width, height)), bench)
    _draw_times(figure.add_axes((_RIGHT, low, width, height)), bench)
    # Also where the title is cut off.
    marks = [word for word, marked in (("VIRTUAL", bench.virtual), ("NO RESULT", not bench.quiet)) if marked]
    figure.text(0.5, 0.42, "  ".join(marks), size=60, weight="bold", color=_FAINT, alpha=0.12, ha="center", va="center")
    figure.savefig(path, format="png")


def _draw_rates(axes: "Axes", bench: Bench) -> None:
    """Tokens a second: steady and whole run, with the least and the most of all turns, and how many times the base."""
    base = bench.find(BASE)
    for at, result in enumerate(bench.results):
        for (measure, (color, _)), aside in zip(_RATES.items(), (-_ASIDE, _ASIDE), strict=True):
            if (found := result.spread(measure)) is not None:
                compared = None if base is None else ratio(result, base, measure)
                text = f"{found.median:,.0f}" + (f"   {compared.median:.2f} x" if compared else "")
                _draw_spread(axes, at + aside, found, color, text)
    _finish(axes, bench, "tokens/s" + (f", and how many times {BASE}" if base else ""), _RATES)
    axes.set_yticks(range(len(bench.results)), [one.scenario.name.replace("+", "\n+") for one in bench.results])


def _draw_times(axes: "Axes", bench: Bench) -> None:
    """V and t one after the other, and the step below: what it is shorter than both together is hidden."""
    for at, result in enumerate(bench.results):
        left = 0.0
        for measure in ("verify_ms", "draft_ms"):
            if ms := result.median(measure):
                axes.barh(at - _ASIDE, ms, _HEIGHT, left, color=_TIMES[measure][0])
                left += ms
        if left:
            _say(axes, left, at - _ASIDE, f"{left:.3g}")
        if (step := result.spread("step_ms")) is not None:
            _draw_spread(axes, at + _ASIDE, step, _STEP, f"{step.median:.3g}")
    _finish(axes, bench, "ms, medians of the steady part", _TIMES)
    axes.set_yticks([])


def _draw_spread(axes: "Axes", at: float, found: Spread, color: str, text: str) -> None:
    """A bar to the median with a line from the least to the most."""
    axes.barh(at, found.median, _HEIGHT, color=color)
    around = [[found.median - found.least], [found.most - found.median]]
    axes.errorbar(found.median, at, xerr=around, color=_INK, capsize=3.5, linewidth=1.2)
    _say(axes, found.most, at, text)


def _say(axes: "Axes", left: float, at: float, text: str) -> None:
    axes.annotate(text, (left, at), (9, 0), textcoords="offset points", va="center", size=_TEXT_PT, color=_INK)


def _finish(axes: "Axes", bench: Bench, title: str, meanings: Mapping[str, tuple[str, str]]) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415

    axes.set_title(title, loc="left", size=_LABEL_PT, color=_INK, pad=28)
    axes.set_ylim(len(bench.results) - 0.5, -0.55)
    axes.set_xlim(0, axes.dataLim.x1 * 1.18 if axes.has_data() else 1)  # room for what stands right of the longest bar
    axes.tick_params("y", length=0, labelsize=_LABEL_PT, labelcolor=_INK, pad=8)
    axes.tick_params("x", length=0, labelsize=_TEXT_PT, labelcolor=_FAINT)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["bottom", "right", "top"]].set_visible(False)
    axes.spines["left"].set_color(_FAINT)
    axes.grid(axis="x", color=_GRID, linewidth=1)
    axes.set_axisbelow(True)
    axes.legend(
        handles=[Patch(color=color, label=meaning) for color, meaning in meanings.values()],
        ncols=len(meanings),
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        frameon=False,
        fontsize=_TEXT_PT,
        labelcolor=_FAINT,
        handlelength=1.2,
        borderaxespad=0.3,
        borderpad=0,
    )
