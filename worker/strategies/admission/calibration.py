"""From how sure the draft model is to how often it is right: learnt, and what is old counts less.

Chances fall into bins, finer near 1, where most of them are. What is known of a bin is what was accepted of the drafts
in it that were tried: those up to the first that was rejected, and that one; what became of others is not known. Before
that, a chance is taken as it is. A chance that is larger never stands for less.
"""

import numpy as np
from numpy.typing import NDArray

from worker.strategies.monotone import grown
from worker.strategies.seam import Chances, Counts

_BINS = 24
#: From 0 to 1, each finer than the one before.
_EDGES = 1 - (np.arange(_BINS, -1, -1) / _BINS) ** 2
#: Drafts of a bin after which one counts half.
_HALF_LIFE = 1000.0
#: As many drafts as what is believed at first counts.
_PRIOR = 12.0


class Calibration:
    """Learns what is accepted of drafts with a chance."""

    def __init__(self) -> None:
        middles = (_EDGES[:-1] + _EDGES[1:]) / 2
        self._tried: NDArray[np.float64] = np.full(_BINS, _PRIOR)
        self._chances = _PRIOR * middles
        self._accepted = _PRIOR * middles
        self._fit()

    def __call__(self, chances: Chances) -> Chances:
        """[rows, drafts] the share that is accepted of drafts with these chances; 0 stays 0."""
        return np.where(chances > 0, np.interp(chances, self._x, self._y), 0.0)

    def add(self, chances: Chances, counts: Counts, accepted: Counts) -> None:
        """What came of drafts.

        Args:
            chances: [rows, drafts] as they were when they were drafted.
            counts: [rows] how many of them were verified.
            accepted: [rows] how many of those, from the first on, were accepted.
        """
        places = np.arange(chances.shape[1])
        tried = places < np.minimum(counts, accepted + 1)[:, None]
        seen = chances[tried]
        bins = np.clip(np.searchsorted(_EDGES, seen, side="right") - 1, 0, _BINS - 1)
        count = np.bincount(bins, minlength=_BINS)
        kept = 0.5 ** (count / _HALF_LIFE)
        self._tried = self._tried * kept + count
        self._chances = self._chances * kept + np.bincount(bins, seen, _BINS)
        right = np.broadcast_to(places < accepted[:, None], tried.shape)[tried]
        self._accepted = self._accepted * kept + np.bincount(bins, right, _BINS)
        self._fit()

    def _fit(self) -> None:
        self._x = self._chances / self._tried
        self._y = grown(self._accepted / self._tried, self._tried)
