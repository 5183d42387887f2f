"""One choice, whatever is measured. With `Way.AHEAD` this is PEARL (arXiv 2408.11850)."""

from worker.strategies.modes.words import in_words
from worker.strategies.seam import Choice, Load


class Fixed:
    """Chooses what it is told.

    Args:
        choice: what.

    Attributes:
        why: the reason for the last change, in words.
    """

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self.why = f"{in_words(choice)}: as asked for"

    def choose(self, load: Load, now: Choice) -> Choice:
        """What it was told."""
        del load, now
        return self._choice
