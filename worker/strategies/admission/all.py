"""All drafts are verified, as many of each row as there are."""

import numpy as np

from worker.strategies.seam import Chances, Counts, Drafted


class AdmitAll:
    """Every draft is verified; of `Drafted.chances` only the shape counts."""

    needs_chances = False

    def admit(self, drafted: Drafted) -> Counts:
        """[rows] as many as there are."""
        rows, drafts = drafted.chances.shape
        return np.full(rows, drafts, np.int64)

    def verified(self, chances: Chances, counts: Counts, accepted: Counts) -> None:
        """Nothing is learnt."""
