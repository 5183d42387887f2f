"""A row's length follows its own acceptance, as PEARL's (arXiv 2408.11850) and PACER's (arXiv 2602.01274) does.

Both stop drafting where the next token would probably be rejected: PEARL at the first rejection, PACER by a trained
layer. Here the length is that of the best stop if each of a row's drafts is accepted with one chance a (Leviathan et
al., arXiv 2211.17192): the j-th is of use with chance a^j, and is worth its place while a^j is no less than its price.
What is believed of a row is drawn to what is known of all, until it has shown its own (a Beta prior), and forgets:
texts have easy and hard parts. Only the past of a row counts, never what was drafted now: so no text changes.
"""

import math
from dataclasses import dataclass

#: Tried drafts of a row, and of all rows, after which one counts half.
_ROW_HALF_LIFE, _ALL_HALF_LIFE = 24.0, 4000.0
#: As many tried drafts of a row as what is known of all counts.
_PRIOR_WEIGHT = 6.0
#: What is believed of all before anything is known, and as many tried drafts it counts.
_PRIOR, _PRIOR_TRIED = 0.7, 4.0
#: A row whose drafts are not worth their price is tried again with one every so many times: it may have got easier.
_PROBE = 8


@dataclass(slots=True)
class _Past:
    """What became of drafts: those that were tried, those accepted, and the times since one was verified."""

    tried: float = 0.0
    accepted: float = 0.0
    without: int = 0

    def add(self, tried: int, accepted: int, half_life: float) -> None:
        kept = 0.5 ** (tried / half_life)
        self.tried = self.tried * kept + tried
        self.accepted = self.accepted * kept + accepted


class Adaptive:
    """Learns each row's acceptance."""

    def __init__(self) -> None:
        self._all = _Past(_PRIOR_TRIED, _PRIOR * _PRIOR_TRIED)
        self._rows: dict[str, _Past] = {}

    def chance(self, request: str) -> float:
        """How likely a row's next draft is accepted where those before it were."""
        known = self._all.accepted / self._all.tried
        past = self._rows.get(request)
        if past is None:
            return known
        return (past.accepted + _PRIOR_WEIGHT * known) / (past.tried + _PRIOR_WEIGHT)

    def most(self, request: str, drafts: int, price: float) -> int:
        """The drafts that are worth their price; where none is, one now and then."""
        most = _worth(self.chance(request), drafts, price)
        if most or not drafts:
            return most
        past = self._rows.setdefault(request, _Past())
        past.without += 1
        if past.without < _PROBE:
            return 0
        past.without = 0
        return 1

    def verified(self, request: str, drafts: int, accepted: int) -> None:
        """Learns from the drafts that were tried: the accepted ones, and the first that was not."""
        tried = min(drafts, accepted + 1)
        if tried:
            self._rows.setdefault(request, _Past()).add(tried, accepted, _ROW_HALF_LIFE)
            self._all.add(tried, accepted, _ALL_HALF_LIFE)

    def ended(self, request: str) -> None:
        """Forgets the row; what all rows have taught stays."""
        self._rows.pop(request, None)


def _worth(chance: float, drafts: int, price: float) -> int:
    """The largest j up to `drafts` with chance^j >= price."""
    if price <= 0 or chance >= 1:
        return drafts if price <= 1 else 0
    if price > chance:
        return 0
    return min(drafts, int(math.log(price) / math.log(chance) * (1 + 1e-12)))
