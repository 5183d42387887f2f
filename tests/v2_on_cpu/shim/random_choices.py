"""A mode that chooses anything, in engines whose environment asks for it: a plugin that vLLM loads in its processes."""

import os
import random
from typing import Any

VARIABLE = "MINEDRAFT_TEST_CHOICES"
"""The seed; none: nothing is changed."""


def register() -> None:
    """What vLLM calls in each of its processes."""
    if VARIABLE in os.environ:
        from worker.strategies import modes

        modes.make = lambda strategy, drafts, *_, **__: Anything(drafts, int(os.environ[VARIABLE]))


class Anything:
    """Two batches or one, and any number of drafts, for a few calls each."""

    why = "anything"

    def __init__(self, drafts: int, seed: int) -> None:
        self._drafts, self._chance = drafts, random.Random(seed)

    def choose(self, load: Any, now: Any) -> Any:
        from worker.strategies.seam import Choice, Way

        del load
        if self._chance.random() < 0.6:
            return now
        return Choice(self._chance.choice([Way.TWO, Way.ONE]), self._chance.randint(0, self._drafts))
