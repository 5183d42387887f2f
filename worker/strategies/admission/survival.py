"""How likely each draft is to be accepted with all before it, and the drafts of a batch in that order.

A draft's survival is the product of the chances of its row up to it. It falls along a row, so a draft comes after those
before it, and the first drafts in the order are a prefix of each row, however many they are. Where a row has fewer
drafts than others, its chances beyond are 0: those are never in the order.
"""

import numpy as np
from numpy.typing import NDArray

from worker.strategies.seam import Chances, Counts


def survivals(chances: Chances) -> Chances:
    """[rows, drafts] how likely each draft is to be accepted, and all before it."""
    return np.cumprod(chances, axis=1, dtype=np.float64)


def ranked(survival: Chances) -> NDArray[np.int64]:
    """[drafts that may survive] from the likeliest on, each as place * rows + row; among equals the first place first.

    What comes after a draft of its own row does not change where it is: that is never likelier.
    """
    flat = survival.T.ravel()
    order = np.argsort(-flat, kind="stable")
    return order[: np.count_nonzero(flat > 0)]


def lengths(order: NDArray[np.int64], rows: int) -> Counts:
    """[rows] how many drafts of each row are among the first of a ranking that are given."""
    return np.bincount(order % rows, minlength=rows) if rows else np.zeros(0, np.int64)
