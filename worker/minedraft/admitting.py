"""Which of the tokens that the drafter drafted are sent as drafts: what an admission rule says, row by row.

Pure but for what is remembered of rows until their drafts are verified. Rows are in the order of messages.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from worker.minedraft.link import REJECTED
from worker.minedraft.relay import NO_DRAFT
from worker.strategies.seam import Admission, Counts, Drafted, Way


def guessed(sampled: Tensor, drafts: Tensor, guess: Tensor) -> Tensor:
    """Whether a row goes on as it was drafted ahead: all of its drafts were accepted, and the token after them guessed.

    Args:
        sampled: [rows, up to drafts + 1] ids, REJECTED after the last valid one.
        drafts: [rows] how many each has, without zeros that stand for missing ones.
        guess: [rows] ids.

    Returns:
        [rows] bool.
    """
    valid = (sampled != REJECTED).sum(dim=1)
    return (valid == drafts + 1) & (sampled.gather(1, drafts.unsqueeze(1)).squeeze(1) == guess)


def message(drafts: Tensor, counts: Counts, width: int) -> Tensor:
    """What is sent of drafts.

    Args:
        drafts: [rows, drafts] ids.
        counts: [rows] how many of each row's, from the first on, are drafts.
        width: of a message.

    Returns:
        [rows, width] int32, `NO_DRAFT` after each row's last draft.
    """
    sent = torch.full((len(drafts), width), NO_DRAFT, dtype=torch.int32)
    sent[:, : drafts.shape[1]] = drafts
    sent[torch.arange(width) >= torch.from_numpy(counts).unsqueeze(1)] = NO_DRAFT
    return sent


class Admitting:
    """Asks an admission rule, and tells it what came of its drafts.

    Args:
        admission: the rule.
        width: drafts of a message.
        refresh: is called before the rule is asked: brings what it reads up to date.
    """

    def __init__(self, admission: Admission, width: int, refresh: Callable[[], None]) -> None:
        self._admission, self._width, self._refresh = admission, width, refresh
        self._chances: dict[str, NDArray[np.float64]] = {}

    @property
    def needs_chances(self) -> bool:
        """Whether the rule looks at chances; if not it admits everything."""
        return self._admission.needs_chances

    def admit(self, requests: Sequence[str], chances: Tensor, most: Counts, way: Way) -> Counts:
        """How many of each row's drafts are sent.

        Args:
            requests: the rows.
            chances: [rows, drafts] how sure the model was at each place.
            most: [rows] how many drafts each row has.
            way: how rows take turns.

        Returns:
            [rows] int64, `most` or less.
        """
        self._refresh()
        known = np.zeros((len(requests), self._width))
        known[:, : chances.shape[1]] = chances.numpy()
        known[np.arange(self._width) >= most[:, np.newaxis]] = 0.0
        counts = np.minimum(self._admission.admit(Drafted(known[:, : chances.shape[1]], way)), most)
        self._chances |= dict(zip(requests, known, strict=True))
        return counts

    def verified(self, requests: Collection[str], drafted: Mapping[str, int], sampled: Tensor) -> None:
        """Tell the rule what came of the drafts that a call verified.

        Args:
            requests: the call's rows.
            drafted: how many drafts of this drafter each row had; rows that had some.
            sampled: [rows, up to drafts + 1] ids, REJECTED after the last valid one.
        """
        valid = dict(zip(requests, np.count_nonzero(sampled.numpy() != REJECTED, axis=1).tolist(), strict=True))
        rows = [request for request in drafted if request in self._chances]
        if rows:
            self._admission.verified(
                np.stack([self._chances.pop(request) for request in rows]),
                np.array([drafted[request] for request in rows], np.int64),
                np.array([min(valid[request] - 1, drafted[request]) for request in rows], np.int64),
            )

    def forget(self, requests: Collection[str]) -> None:
        """Rows that will not come back."""
        for request in requests:
            self._chances.pop(request, None)
