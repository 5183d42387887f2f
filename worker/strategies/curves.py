"""The curves through a table of passes: what a call takes as a function of what is in it.

    ms = first(tokens) + b requests + (passes - 1) next(requests)

`first` and `next` are piecewise straight between knots and are fitted by least squares of relative errors. A small
penalty on bends decides where no pass is, and one on the difference of `first` and `next` divides a call's time among
its passes where all calls had the same number of them: then a pass over as many tokens is taken to take as long,
whichever it is. All penalties are weaker than one pass. The curves are then made to grow, and beyond the sizes that
were seen they go on straight, by what is known near the end. No slope is more than ms / tokens there: as is so for a
constant and a roofline (Williams et al. 2009).
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.strategies.monotone import grown

Floats = NDArray[np.float64]

#: Tokens, or requests: each number to 8, then four to a doubling, to 16,384.
KNOTS: Floats = np.concatenate([np.arange(1.0, 8.0), 8.0 * 2 ** (np.arange(45) / 4)])
_KNOTS: list[float] = KNOTS.tolist()
_COUNT = len(KNOTS)
#: The weights of bends, of what `first` and `next` differ by, and of `b`, beside that of a pass.
_BENDS, _EVEN, _CONTEXT = 0.01, 1e-3, 0.03
#: Keeps the system regular where nothing else says anything.
_TINY = 1e-9
#: What is near an end: sizes that differ from it by this factor.
_NEAR_END = 3.0
#: [knots - 2, knots] each bend of a curve, times the size at which it is.
_BEND: Floats = np.diff(np.diff(np.eye(_COUNT), axis=0) / np.diff(KNOTS)[:, None], axis=0) * KNOTS[1:-1, None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """A table of passes: a row each.

    Attributes:
        requests: [rows] in the batch.
        tokens: [rows] of the first pass.
        passes: [rows] of the call, at least 1.
        ms: [rows] that the call took.
        weight: [rows] how much each counts.
    """

    requests: Floats
    tokens: Floats
    passes: Floats
    ms: Floats
    weight: Floats


@dataclass(frozen=True, slots=True)
class Curves:
    """What a call takes, ms.

    Attributes:
        first: [knots] of the first pass.
        next: [knots] of each other.
        context: of each request.
    """

    first: Floats
    next: Floats
    context: float

    def ms(self, requests: float, tokens: float, passes: int) -> float:
        """A call."""
        first = _at(self.first, tokens) + self.context * requests
        return first + (passes - 1) * _at(self.next, requests) if passes > 1 else first

    def firsts(self, requests: float, tokens: Floats) -> Floats:
        """[sizes] a call of one pass over each number of tokens."""
        return np.asarray(np.interp(tokens, KNOTS, self.first) + self.context * requests)

    def slope(self, tokens: float) -> float:
        """What one more token takes in the first pass."""
        low, high = max(1.0, tokens * 7 / 8), max(tokens + 1.0, tokens * 9 / 8)
        return max(0.0, _at(self.first, high) - _at(self.first, low)) / (high - low)


def fit(sizes: Sizes, *, loops: bool) -> Curves:
    """The curves through a table of at least one row.

    Args:
        sizes: the table.
        loops: whether calls have other passes than a first one; else `next` is 0.
    """
    least = min(float(sizes.tokens.min()), float(sizes.requests.min()) if loops else np.inf)
    low = min(bisect_right(_KNOTS, least) - 1, _COUNT - 3)
    high = min(bisect_right(_KNOTS, float(sizes.tokens.max())) + 1, _COUNT)
    within = slice(max(0, low), max(high, low + 3))
    found = _solved(sizes, within, loops=loops, context=True)
    if found[-1] < 0:  # no request is cheaper for its context
        found = _solved(sizes, within, loops=loops, context=False)
    knots = KNOTS[within]
    first, other = found[: len(knots)], found[len(knots) : -1]
    return Curves(
        first=_grown(knots, first, sizes.tokens, sizes.weight),
        next=_grown(knots, other, sizes.requests, sizes.weight) if loops else np.zeros(_COUNT),
        context=float(found[-1]),
    )


def _solved(sizes: Sizes, within: slice, *, loops: bool, context: bool) -> Floats:
    """[knots of first, of next if `loops`, 1] least squares, with the knots of a part of `KNOTS`."""
    knots = KNOTS[within]
    count = len(knots)
    columns = [_hats(sizes.tokens, knots)]
    if loops:
        columns.append(_hats(sizes.requests, knots) * (sizes.passes - 1)[:, None])
    columns.append(sizes.requests[:, None] * context)
    # Relative errors: a pass of 2 ms is to be known as well as one of 200.
    matrix = np.concatenate(columns, axis=1) / sizes.ms[:, None]
    weighted = matrix.T * sizes.weight
    system = weighted @ matrix
    level = float(np.average(sizes.ms, weights=sizes.weight)) ** -2
    bend = _BEND[within.start : within.stop - 2, within]
    bends, even = _BENDS * level * bend.T @ bend, _EVEN * level * np.eye(count)
    first, others = slice(0, count), slice(count, -1)
    system[first, first] += bends
    if loops:
        system[others, others] += bends + even
        system[first, first] += even
        system[first, others] -= even
        system[others, first] -= even
    system[-1, -1] += _CONTEXT * level * float(sizes.requests.max()) ** 2
    system[np.diag_indices_from(system)] += _TINY * level
    return np.linalg.solve(system, weighted.sum(axis=1))


def _hats(sizes: Floats, grid: Floats) -> Floats:
    """[sizes, grid] the weights of the grid's points at each size: they interpolate."""
    sizes = np.clip(sizes, grid[0], grid[-1])
    below = np.clip(np.searchsorted(grid, sizes, side="right") - 1, 0, len(grid) - 2)
    share = (sizes - grid[below]) / (grid[below + 1] - grid[below])
    ones = np.eye(len(grid))
    return np.asarray(ones[below] * (1 - share)[:, None] + ones[below + 1] * share[:, None])


def _grown(knots: Floats, curve: Floats, sizes: Floats, weight: Floats) -> Floats:
    """[KNOTS] a curve at some knots, made to grow, and straight beyond the sizes that were seen."""
    low, high = float(sizes.min()), float(sizes.max())
    if low == high:
        return np.full(_COUNT, max(0.0, float(np.interp(low, knots, curve))))
    x = np.unique(np.concatenate([[low], KNOTS[(low < KNOTS) & (high > KNOTS)], [high]]))
    support = _TINY + weight @ _hats(sizes, x)
    y = np.maximum(grown(np.interp(x, knots, curve), support), 0.0)
    down = _slope(x, y, sizes, weight, low)
    up = _slope(x, y, sizes, weight, high)
    beyond = y[-1] + up * (KNOTS - high)
    return np.where(low > KNOTS, y[0] - down * (low - KNOTS), np.where(high < KNOTS, beyond, np.interp(KNOTS, x, y)))


def _slope(x: Floats, y: Floats, sizes: Floats, weight: Floats, end: float) -> float:
    """The curve's slope near an end of what was seen: that of the line through it, by the sizes seen there."""
    near = (sizes <= end * _NEAR_END) & (sizes >= end / _NEAR_END)
    at, of = sizes[near], weight[near]
    ms = np.interp(at, x, y)
    beside = at - np.average(at, weights=of)
    spread = float(np.sum(of * beside**2))
    if spread <= 0:
        return 0.0
    edge = float(np.interp(end, x, y))
    return min(max(0.0, float(np.sum(of * beside * ms)) / spread), edge / end)


def _at(curve: Floats, size: float) -> float:
    """The curve at a size; beyond the knots as at the last."""
    if size <= 1.0:
        return float(curve[0])
    below = min(bisect_right(_KNOTS, size) - 1, _COUNT - 2)
    share = min(1.0, (size - _KNOTS[below]) / (_KNOTS[below + 1] - _KNOTS[below]))
    return float(curve[below]) * (1 - share) + float(curve[below + 1]) * share
