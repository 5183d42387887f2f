"""TETRIS (arXiv 2502.15197): the drafts of a batch share one capacity, and those that are likeliest to survive get it.

Tokens are drafted beyond what is verified in the mean, so a row that is easy to guess gets more places, and one that is
hard gets fewer. The paper scores a draft by the probabilities of the drawn tokens. Here its score is what was known
before it was drawn: else a likely draw would be verified more often than an unlikely one, and the distribution shift.
"""

from worker.strategies.admission.calibration import Calibration
from worker.strategies.admission.survival import lengths, ranked, survivals
from worker.strategies.seam import Chances, Counts, Drafted


class AdmitBest:
    """Verifies the drafts of a batch that are likeliest to be accepted with all before them.

    Args:
        verified: drafts of a row that are verified in the mean (k of the paper; k + e are drafted).

    Raises:
        ValueError: that is none.
    """

    needs_chances = True

    def __init__(self, verified: int) -> None:
        if verified < 1:
            raise ValueError("tetris verifies fewer than are drafted, but one a row at least")
        self._mean = verified
        self._calibrated = Calibration()

    def admit(self, drafted: Drafted) -> Counts:
        """[rows] how many of each: of rows that have drafts so many, in the mean, as are verified."""
        survival = survivals(self._calibrated(drafted.chances))
        rows, _ = survival.shape
        capacity = self._mean * int((survival[:, :1] > 0).sum())
        return lengths(ranked(survival)[:capacity], rows)

    def verified(self, chances: Chances, counts: Counts, accepted: Counts) -> None:
        """Learns how likely drafts are accepted of which the model was so sure."""
        self._calibrated.add(chances, counts, accepted)
