"""What of the drafts that are asked for is verified, and accepted, in the mean of all rows; learnt, by their number.

A row may verify fewer drafts than were drafted: some are not admitted, or not worth their price, or it has just read
its prompt. Or more: what is found (`sources/`) needs no drafter, so there are drafts where none is asked for, too. What
passes cost and what they bring is then not what so many drafts for each row say (`modes/predict.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass

#: Rows of passes after which one counts half.
_HALF_LIFE = 2000.0
#: As many rows as the belief that all drafts are verified counts.
_PRIOR_ROWS = 32.0


@dataclass(slots=True)
class _Seen:
    """Forgetful sums over rows that were asked for as many drafts."""

    rows: float = 0.0
    verified: float = 0.0
    accepted: float = 0.0


class Yields:
    """Counts rows, and their drafts, by how many were asked for."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def add(self, asked: int, rows: int, verified: int, accepted: int) -> None:
        """A pass.

        Args:
            asked: drafts that were drafted for each of its rows; 0: what was verified was found.
            rows: in it.
            verified: drafts of all of them.
            accepted: of those.
        """
        seen = self._seen.setdefault(asked, _Seen())
        kept = 0.5 ** (rows / _HALF_LIFE)
        seen.rows = seen.rows * kept + rows
        seen.verified = seen.verified * kept + verified
        seen.accepted = seen.accepted * kept + accepted

    def of(self, drafts: int, expected: Callable[[int], float]) -> tuple[float, float]:
        """How many of a row's drafts are verified, and accepted, in the mean.

        Where as many were never asked for they are taken to be trimmed as the number nearest to it is: of fewer than
        were asked for that share is verified, and of more so many more. What is found where none is asked for is its
        own number.

        Args:
            drafts: that are asked for.
            expected: how many are accepted of so many if all are verified.
        """
        alike = [asked for asked in self._seen if (asked > 0) == (drafts > 0)]
        if not alike:
            return float(drafts), expected(drafts)
        nearest = min(alike, key=lambda asked: (abs(asked - drafts), asked))
        seen, all_accepted = self._seen[nearest], expected(nearest)
        rows = seen.rows + _PRIOR_ROWS
        verified = (seen.verified + _PRIOR_ROWS * nearest) / rows
        accepted = (seen.accepted + _PRIOR_ROWS * all_accepted) / rows
        return _as(drafts, verified, nearest), _as(expected(drafts), accepted, all_accepted)


def _as(number: float, got: float, of: float) -> float:
    """What is got of a number where so much is got of another one."""
    return number * got / of if got < of else number + got - of
