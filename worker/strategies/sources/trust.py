"""What chances of a source are worth, by what became of its drafts: `admission/calibration.py`, a little at a time.

A row's drafts are few, and numpy takes as long for one row as for a hundred: so outcomes are learnt in lots, and
chances are looked up in a table.
"""

from collections.abc import Sequence

import numpy as np

from worker.strategies.admission.calibration import Calibration

_STEPS = 128
#: Outcomes of rows that are learnt at once.
_LOT = 64


def believed(length: int) -> float:
    """How likely a token is that followed the same `length` tokens elsewhere, before anything is known of a source."""
    return length / (length + 2)


class Trust:
    """Of one source."""

    def __init__(self) -> None:
        self._calibration = Calibration()
        self._outcomes: list[tuple[Sequence[float], int, int]] = []
        self._table = self._made()

    def __call__(self, chance: float) -> float:
        """The share of drafts with such a chance that is accepted where those before them were."""
        return self._table[round(chance * _STEPS)]

    def add(self, chances: Sequence[float], drafts: int, accepted: int) -> None:
        """What came of a row's drafts.

        Args:
            chances: as the source gave them.
            drafts: how many were verified, the first ones.
            accepted: how many of those, from the first on, were accepted.
        """
        self._outcomes.append((chances, drafts, accepted))
        if len(self._outcomes) < _LOT:
            return
        told = np.zeros((_LOT, max(len(each) for each, _, _ in self._outcomes)))
        for row, (each, _, _) in enumerate(self._outcomes):
            told[row, : len(each)] = each
        counts, kept = (np.array([outcome[of] for outcome in self._outcomes], np.int64) for of in (1, 2))
        self._calibration.add(told, counts, kept)
        self._outcomes.clear()
        self._table = self._made()

    def _made(self) -> list[float]:
        steps: list[float] = self._calibration(np.arange(_STEPS + 1)[None] / _STEPS)[0].tolist()
        return steps
