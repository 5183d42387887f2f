"""How much of what passes read is prompts, for each token that rows get; learnt, and what is old counts less."""

from typing import NamedTuple

#: The weight of the newest pass.
_NEWEST = 0.02


class Reading(NamedTuple):
    """Prompts beside the rows that are answered.

    Attributes:
        share: tokens of prompts for each token that rows get.
        lump: tokens of prompts in a pass that has some.
    """

    share: float = 0.0
    lump: float = 0.0


#: No prompts.
NOTHING = Reading()


class Prompts:
    """Follows passes.

    Attributes:
        reading: as it is now.
    """

    def __init__(self) -> None:
        self.reading = NOTHING
        self._read = self._gained = self._lumps = 0.0

    def add(self, read: int, gained: int) -> None:
        """A pass read so many tokens of prompts, and rows got so many tokens."""
        self._read += _NEWEST * (read - self._read)
        self._gained += _NEWEST * (gained - self._gained)
        self._lumps += _NEWEST * ((read > 0) - self._lumps)
        if self._gained > 0 and self._lumps > 0:
            self.reading = Reading(self._read / self._gained, self._read / self._lumps)
