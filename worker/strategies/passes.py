"""A table of passes by what was in them, each size's the forgetful mean of what they took.

Passes that took more than twice of what is known of their size were disturbed by something else and count as twice. One
that took less than half shows that what is known was disturbed: nothing makes a pass faster than it is.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from worker.strategies.curves import Curves, Floats, Sizes, fit

#: Passes of a size after which one counts half.
_HALF_LIFE = 32.0
#: Passes of any size after which a size that was not seen again counts half.
_STALE = 4096.0
#: More than so many times what is known, or less than its inverse, was disturbed.
_DISTURBED = 2.0
#: Sizes that are kept; the one that was not seen for longest goes.
_SIZES = 192
#: A size is known by so many passes of sizes that differ from it by no more than this share,
_ENOUGH, _NEAR = 2.5, 0.13
#: the newest no more passes ago than this.
_RECENT = 8192


@dataclass(slots=True)
class _Size:
    """Forgetful means over the passes of about one size, the weight of which they have, and when the newest was."""

    weight: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0
    ms: float = 0.0
    seen: int = 0

    def add(self, requests: int, tokens: int, ms: float, seen: int) -> None:
        """A pass, the so manieth."""
        if self.weight and ms < self.ms / _DISTURBED:
            self.weight = 0.0
        elif self.weight:
            ms = min(ms, _DISTURBED * self.ms)
        self.weight = self.weight * 0.5 ** (1 / _HALF_LIFE) + 1.0
        share = 1.0 / self.weight
        self.requests += share * (requests - self.requests)
        self.tokens += share * (tokens - self.tokens)
        self.ms += share * (ms - self.ms)
        self.seen = seen


class Passes:
    """Learns what calls take.

    A call has a pass over some tokens and then, where it loops, others over one token of each request.

    Args:
        loops: whether calls may loop.
    """

    def __init__(self, *, loops: bool) -> None:
        self._loops = loops
        self._sizes: dict[tuple[int, int, int], _Size] = {}
        self._seen = 0
        # What follows from all that was added, until something is.
        self._curves: Curves | None = None
        self._known: dict[float, bool] = {}

    def add(self, requests: int, tokens: int, passes: int, ms: float) -> None:
        """A call took so long; one with nothing in it, or no time, is left out."""
        if requests < 1 or tokens < 1 or not ms > 0:
            return
        self._seen += 1
        key = (_bucket(requests), _bucket(tokens), passes)
        if key not in self._sizes:
            if len(self._sizes) == _SIZES:
                del self._sizes[min(self._sizes, key=lambda key: self._sizes[key].seen)]
            self._sizes[key] = _Size()
        self._sizes[key].add(requests, tokens, ms, self._seen)
        self._curves = None
        self._known.clear()

    @property
    def curves(self) -> Curves | None:
        """The curves through all that was added; None before anything was."""
        if self._curves is None and self._sizes:
            sizes = self._sizes.values()
            age = np.array([self._seen - size.seen for size in sizes])
            table = Sizes(
                requests=_column(size.requests for size in sizes),
                tokens=_column(size.tokens for size in sizes),
                passes=_column(passes for _, _, passes in self._sizes),
                ms=_column(size.ms for size in sizes),
                weight=_column(size.weight for size in sizes) * 0.5 ** (age / _STALE),
            )
            self._curves = fit(table, loops=self._loops)
        return self._curves

    def known(self, tokens: float) -> bool:
        """Whether calls whose first pass is of about this size were seen, enough of them and not long ago."""
        if tokens not in self._known:
            weight = sum(
                size.weight
                for size in self._sizes.values()
                if abs(size.tokens - tokens) <= _NEAR * tokens and self._seen - size.seen <= _RECENT
            )
            self._known[tokens] = weight >= _ENOUGH
        return self._known[tokens]


def _column(numbers: Iterable[float]) -> Floats:
    return np.fromiter(numbers, np.float64)


def _bucket(size: int) -> int:
    """The number of a size's class: each size to 16 is one, then twelve to a doubling."""
    return size if size <= 16 else round(12 * math.log2(size)) - 32
