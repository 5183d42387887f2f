"""Of the drafts at each position, the share accepted where all before were; learnt, and what is old counts less."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from worker.strategies.yields import Yields

#: Drafts of a position after which one counts half.
_HALF_LIFE = 2000.0
#: What is taken for known before anything was seen, and how many drafts that counts as.
_PRIOR, _PRIOR_WEIGHT = 0.6, 4.0


class Acceptance:
    """Counts drafts, and those accepted, by position.

    Attributes:
        yields: what of the drafts that are asked for is verified at all.
    """

    def __init__(self) -> None:
        self._drafted: NDArray[np.float64] = np.zeros(0)
        self._accepted: NDArray[np.float64] = np.zeros(0)
        self._shares: list[float] = []
        self.yields = Yields()

    def add(self, drafted_at: ArrayLike, accepted: ArrayLike) -> None:
        """Some passes' drafts.

        Args:
            drafted_at: [positions] rows with a draft verified at each position, from 0.
            accepted: [positions] rows with a draft accepted there, and so at all positions before.
        """
        verified = np.asarray(drafted_at, np.float64)
        kept = np.asarray(accepted, np.float64)
        tried = _tried(verified, kept)
        if tried.size > self._drafted.size:
            longer = tried.size - self._drafted.size
            self._drafted, self._accepted = np.pad(self._drafted, (0, longer)), np.pad(self._accepted, (0, longer))
        faded = 0.5 ** (tried / _HALF_LIFE)
        self._drafted[: tried.size] = self._drafted[: tried.size] * faded + tried
        self._accepted[: tried.size] = self._accepted[: tried.size] * faded + kept
        self._shares = self._estimated()

    def at(self, position: int) -> float:
        """The share accepted at a position, from 0, of the drafts there whose predecessors all were.

        Of positions that were not seen it is that of the last one that was.
        """
        if not self._shares:
            return _PRIOR
        return self._shares[min(position, len(self._shares) - 1)]

    def tokens(self, drafts: int) -> float:
        """What a row gets in the mean when so many of its drafts are verified: 1 + p0 + p0 p1 + ..."""
        total = reached = 1.0
        for position in range(drafts):
            reached *= self.at(position)
            total += reached
        return total

    def asked(self, drafts: int) -> tuple[float, float]:
        """What is verified of a row, its own token included, and what it gets, where so many drafts are asked for."""
        verified, accepted = self.yields.of(drafts, lambda count: self.tokens(count) - 1)
        return 1 + verified, 1 + accepted

    def _estimated(self) -> list[float]:
        """[positions seen] each drawn to the one before it by a few drafts' weight, the first to the prior."""
        shares, before = [], _PRIOR
        for drafted, accepted in zip(self._drafted.tolist(), self._accepted.tolist(), strict=True):
            if drafted <= 0:
                break
            before = min(1.0, (accepted + _PRIOR_WEIGHT * before) / (drafted + _PRIOR_WEIGHT))
            shares.append(before)
        return shares


def _tried(verified: NDArray[np.float64], kept: NDArray[np.float64]) -> NDArray[np.float64]:
    """[positions] of the drafts verified at each position, those whose predecessors were all accepted, in the mean.

    The counts do not say which rows had how many. Where they differ, a row with a draft at j is taken to have had those
    before it accepted as often as any other row: right where rows have fewer for reasons that are not their acceptance.
    """
    before, reached = np.roll(verified, 1), np.roll(kept, 1)
    share = np.divide(reached, before, out=np.zeros_like(before), where=before > 0)
    share[:1] = 1.0
    return np.asarray(verified * share)
