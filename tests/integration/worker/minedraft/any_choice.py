"""A scheduler whose mode chooses by lot, before any call: every transition comes up. Named by tests; in the engine."""

import random
from typing import Any

from worker.minedraft.classes import Ranks
from worker.minedraft.scheduler import TwoBatchScheduler
from worker.strategies.seam import Choice, Load, Way

RANKS = Ranks(scheduler=f"{__name__}.AnyChoiceScheduler")
#: Calls from one change to the next, in the mean.
_CALLS = 8


class AnyChoice:
    """A mode.

    Args:
        drafts: tokens drafted for a row in a call, at most.
    """

    why = "by lot"

    def __init__(self, drafts: int) -> None:
        self._chance = random.Random(0)
        self._choices = [Choice(way, count) for way in Way for count in (0, 1, *[drafts] * 3)]

    def choose(self, load: Load, now: Choice) -> Choice:
        """Mostly what is done so far."""
        return self._chance.choice(self._choices) if self._chance.random() < 1 / _CALLS else now


class AnyChoiceScheduler(TwoBatchScheduler):
    """Its conductor has that mode."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._conductor._mode = AnyChoice(self.num_spec_tokens)
