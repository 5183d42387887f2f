"""Confidence-scheduled verification (DSpark): drafts are admitted while the tokens expected per time rise.

With i drafts of a batch of n rows, the likeliest to survive first, a step gives n + their survivals, summed, and takes

    two batches, or ahead    max(V(n + i), t) + what nothing hides
    one batch                V(n + i) + t + what nothing hides

The first draft that does not raise the quotient ends it: to look further would be to decide by chances that follow from
drafts that are decided about. Nothing is lost by it: what passes cost is known before, and in its place there is the
largest curve below it that only bends upwards, on which what has fallen once does not rise again (and a step of V just
ahead is shared by all that pass it). With few rows a pass takes as long for all drafts, and all are verified; with
many, those that are sure.
"""

import numpy as np
from numpy.typing import NDArray

from worker.strategies.admission.calibration import Calibration
from worker.strategies.admission.survival import lengths, ranked, survivals
from worker.strategies.costs import Costs
from worker.strategies.seam import Chances, Counts, Drafted, Way

#: Sizes between the smallest and the largest pass at which V is looked at.
_LOOKS = 17


class AdmitWhileRising:
    """Verifies drafts while that makes a batch faster; all of them while V is not known.

    Args:
        costs: what passes take.
    """

    needs_chances = True

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._calibrated = Calibration()

    def admit(self, drafted: Drafted) -> Counts:
        """[rows] how many of each."""
        survival = survivals(self._calibrated(drafted.chances))
        rows, drafts = survival.shape
        order = ranked(survival)
        step_ms = self._step_ms(rows, drafts, drafted.way)
        if step_ms is not None:
            gained = rows + np.concatenate([[0.0], np.cumsum(survival.T.ravel()[order])])
            falls = np.flatnonzero(np.diff(gained / step_ms[: len(gained)]) <= 0)
            order = order[: falls[0]] if falls.size else order
        return lengths(order, rows)

    def verified(self, chances: Chances, counts: Counts, accepted: Counts) -> None:
        """Learns how likely drafts are accepted of which the model was so sure."""
        self._calibrated.add(chances, counts, accepted)

    def _step_ms(self, rows: int, drafts: int, way: Way) -> NDArray[np.float64] | None:
        """[rows * drafts + 1] how long a step takes with so many drafts in all; None before V is known.

        The draft model's time is that of a batch all drafts of which were verified before.
        """
        sizes = rows + np.arange(rows * drafts + 1)
        looks = np.linspace(rows, sizes[-1], _LOOKS)
        verify = self._costs.verify_curve(rows, looks)
        if verify is None:
            return None
        verify = np.interp(sizes, *_lower_hull(looks, verify))
        draft = self._costs.draft_ms(rows, rows * (1 + drafts), drafts) or 0.0
        steps = verify + draft if way is Way.ONE else np.maximum(verify, draft)
        return np.asarray(steps + self._costs.host_ms(way, drafting=True))


def _lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """The corners of the largest convex curve that is nowhere above the points, which are in order (monotone chain)."""
    corners: list[tuple[float, float]] = []
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(corners) > 1 and _bends_down(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return [at for at, _ in corners], [value for _, value in corners]


def _bends_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether b is on the line from a to c, or above it."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
