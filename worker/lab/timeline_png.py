"""A timeline as a picture: a lane for each set of devices, a colour for each batch."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from worker.lab.timeline import FIRST, WAYS, Facts, Slice, Window, facts, messages, slices, stretches, verified, window
from worker.minedraft.measures import draft_spans
from worker.minedraft.stages import DRAFTER, ENGINE, Records
from worker.strategies.seam import Way

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NS_PER_MS = 1e6
_INCHES, _DPI = (16.0, 4.5), 100
#: The part of the picture that the lanes fill: left, bottom, width, height.
_FRAME = (0.085, 0.2, 0.885, 0.58)
_TITLE_PT, _LABEL_PT, _TEXT_PT = 17, 14, 13
#: Width of a letter in the mean, of its size.
_LETTER = 0.53
#: Labels where there is no room, and no batch to name.
_SHORT = {"verify": "V", "draft": "t"}

_INK, _FAINT, _GRID = "#1f2933", "#66717e", "#e6e9ed"
#: For each batch what is verified, and what is drafted.
_DARK = {"A": "#2f6db5", "B": "#d0702a", "": "#2f6db5"}
_LIGHT = {"A": "#b3d0ee", "B": "#f7d3ad", "": "#b3d0ee"}


class _Lane(NamedTuple):
    """A rank, what it is called, where it lies (y of its lower edge, height), and what it did."""

    rank: str
    name: str
    low: float
    height: float
    did: list[Slice]


class _Look(NamedTuple):
    """How a slice is drawn: colour, hatch and its colour, the colour of its label, and its name in the legend."""

    face: str
    hatch: str = ""
    lines: str = "white"
    label: str = ""
    meaning: str = ""


_WAITS = _Look("#f6f7f9", hatch="////", lines="#c9cfd6", label=_FAINT, meaning="waits")
_SMALL = _Look("#9aa5b1", lines="#9aa5b1", meaning="takes in a result, prepares, sends")
#: What the legend may show.
_LEGEND = (_WAITS, _Look("#9aa5b1", hatch="//", meaning="reads prompts"), _SMALL)


def draw(records: Mapping[str, Records], path: Path, *, title: str, virtual: bool, steps: int = 8) -> None:
    """Draw a few steps (`worker.lab.timeline.window`) into a PNG file of 1600 x 450 pixels. Needs matplotlib.

    Args:
        records: of each rank, by name; of the verifiers, the first is shown.
        path: of the file.
        title: what was measured, in words.
        virtual: whether devices were imagined, which then is part of the title.
        steps: how many, at most.

    Raises:
        ImportError: matplotlib is missing.
        OSError: the file cannot be written.
        TraceError: nothing was verified.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    shown = window(records, steps=steps)
    lanes = _lanes(shown.records)
    figure = Figure(figsize=_INCHES, dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes(_FRAME)
    _draw_frame(axes, lanes, _ms(shown.end - shown.begin))
    used = [_draw_slice(axes, lane, piece, shown) for lane in lanes for piece in lane.did]
    _draw_messages(axes, {lane.rank: lane for lane in lanes}, shown)
    if DRAFTER in records:
        _draw_choices(axes, lanes[-1].low + lanes[-1].height, shown)
    figure.text(_FRAME[0], 0.91, title_of(title, virtual), size=_TITLE_PT, weight="bold", color=_INK, parse_math=False)
    figure.text(_FRAME[0], 0.825, caption(facts(records)), size=_TEXT_PT, color=_FAINT)
    _draw_legend(figure, used)
    figure.savefig(path, format="png")


def title_of(title: str, virtual: bool) -> str:
    """The title, which says so where devices are imagined."""
    return f"{title} (virtual devices)" if virtual else title


def caption(found: Facts) -> str:
    """The steady part in a line."""
    times = (("V", found.verify_ms), ("t", found.draft_ms), ("step", found.step_ms))
    words = [f"{name} = {ms:.3g} ms" for name, ms in times if ms is not None]
    if found.hidden_share is not None:
        words.append(f"hidden share {found.hidden_share:.0%}")
    return "  ·  ".join([*words, f"{found.requests} requests a batch"])


def _lanes(records: Mapping[str, Records]) -> list[_Lane]:
    """From the bottom up: the drafter where there is one, the target, the engine core where it left records."""
    two = DRAFTER in records
    verifiers = len(records.keys() - {DRAFTER, ENGINE})
    target = "target" if two or not len(draft_spans(records[FIRST])) else "target and\ndraft model"
    if verifiers > 1:
        target += f"\n(1 of {verifiers})"
    low, lanes = 0.0, []
    for rank, name, height in ((DRAFTER, "drafter", 1.0), (FIRST, target, 1.0), (ENGINE, "engine core", 0.4)):
        if rank in records:
            lanes.append(_Lane(rank, name, low, height, slices(rank, records[rank], two=two)))
            low += height + 0.45
    return lanes


def _look(lane: _Lane, piece: Slice) -> _Look | None:
    dark, light = _DARK[piece.batch], _LIGHT[piece.batch]
    if piece.name in ("verify", "draft"):
        face, label = (dark, "white") if piece.name == "verify" else (light, _INK)
        return _Look(
            face, label=label, hatch="//" if piece.prefill else "", meaning="reads prompts" * bool(piece.prefill)
        )
    if piece.name in ("wait for drafts", "wait for sampled"):
        return _WAITS
    if lane.rank == FIRST and piece.name in ("prepare", "forward", "sample"):
        return None  # within `verify`
    return _Look(dark, lines=dark) if piece.name == "schedule" else _SMALL


def _draw_frame(axes: "Axes", lanes: list[_Lane], ms: float) -> None:
    axes.set_xlim(0, ms)
    axes.set_ylim(-0.2, lanes[-1].low + lanes[-1].height + 0.1)
    axes.set_yticks([lane.low + lane.height / 2 for lane in lanes], [lane.name for lane in lanes])
    axes.tick_params("y", length=0, labelsize=_LABEL_PT, labelcolor=_INK, pad=8)
    axes.tick_params("x", labelsize=_TEXT_PT, color=_FAINT, labelcolor=_FAINT)
    axes.xaxis.set_major_formatter("{x:g} ms")
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.grid(axis="x", color=_GRID, linewidth=1)
    axes.set_axisbelow(True)


def _draw_slice(axes: "Axes", lane: _Lane, piece: Slice, shown: Window) -> _Look | None:
    """Draw what is seen of it, with a label if one has room."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    look = _look(lane, piece)
    left, right = (_ms(min(max(at, shown.begin), shown.end) - shown.begin) for at in (piece.begin, piece.end))
    if look is None or left == right:
        return None
    axes.barh(
        lane.low,
        right - left,
        left=left,
        height=lane.height,
        align="edge",
        color=look.face,
        edgecolor=look.lines,
        hatch=look.hatch,
        linewidth=0.8,
    )
    if look.label:
        text = next((text for text in _texts(piece) if len(text) < _room(right - left, shown)), "")
        axes.text(
            (left + right) / 2,
            lane.low + lane.height / 2,
            text,
            size=_LABEL_PT,
            color=look.label,
            ha="center",
            va="center",
            path_effects=[withStroke(linewidth=4, foreground=look.face)],  # over a hatch
        )
    return look


def _texts(piece: Slice) -> list[str]:
    """Labels of a slice, the best first."""
    if piece.name.startswith("wait"):
        return ["wait"]
    name = "pass" if piece.args.get("drafted") == 0 else piece.name
    return [f"{name} {piece.batch}".strip(), piece.batch or _SHORT[piece.name]]


def _draw_messages(axes: "Axes", lanes: Mapping[str, _Lane], shown: Window) -> None:
    """A line from each sending to what it is for, between the lanes."""
    if DRAFTER not in lanes:
        return
    target, drafter = lanes[FIRST], lanes[DRAFTER]
    top, bottom = target.low, drafter.low + drafter.height
    for sent, used, down in messages(target.did, drafter.did):
        heights = (top, bottom) if down else (bottom, top)
        times = _ms(sent.begin - shown.begin), _ms(used.begin - shown.begin)
        axes.plot(times, heights, color=_DARK[used.batch], linewidth=1.6, alpha=0.8, solid_capstyle="round")


def _draw_choices(axes: "Axes", low: float, shown: Window) -> None:
    """A thin band above the lanes, in a piece for each choice; none where nothing but two batches was chosen."""
    found = stretches(verified(shown.records), shown.end)
    if len(found) == 1 and found[0].chosen.startswith(WAYS[Way.TWO]):
        return
    axes.set_ylim(axes.get_ylim()[0], low + 0.55)
    for begin, end, chosen in found:
        left, right = (_ms(max(at, shown.begin) - shown.begin) for at in (begin, end))
        axes.barh(low + 0.15, right - left, 0.36, left, align="edge", color=_GRID, edgecolor="white", linewidth=2)
        if len(chosen) < _room(right - left, shown):
            axes.text((left + right) / 2, low + 0.32, chosen, size=_TEXT_PT, color=_INK, ha="center", va="center")


def _room(ms: float, shown: Window) -> float:
    """Letters of a label that so much time has room for."""
    return ms / _ms(shown.end - shown.begin) * _FRAME[2] * _INCHES[0] * 72 / (_LETTER * _LABEL_PT)


def _draw_legend(figure: "Figure", used: Iterable[_Look | None]) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415

    meanings = {look.meaning for look in used if look is not None}
    patches = [
        Patch(facecolor=look.face, edgecolor=look.lines, hatch=look.hatch, label=look.meaning, linewidth=0.8)
        for look in _LEGEND
        if look.meaning in meanings
    ]
    figure.legend(
        handles=patches,
        ncols=len(_LEGEND),
        loc="lower left",
        bbox_to_anchor=(_FRAME[0], 0.005),
        frameon=False,
        fontsize=_TEXT_PT,
        labelcolor=_FAINT,
        borderpad=0,
        borderaxespad=0,
    )


def _ms(ns: int) -> float:
    return ns / _NS_PER_MS
