"""Two batches; and where few rows are left one batch, drafted for in turn or ahead, if measured times say so.

With n rows two batches take 2 max(V(n/2), t(n/2)) for a cycle of all rows, one batch takes V(n) + t(n). When a pass
takes as long for half of the rows, as while reading the weights decides, one batch wins unless t is as long as V.
Drafting ahead hides t there, too, and loses drafts instead: it wins where nearly all drafts are accepted.
"""

from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.modes.predict import step, tokens_per_ms
from worker.strategies.modes.words import change, in_words
from worker.strategies.seam import Choice, Load, Way

#: What another way must be better by for rows to change: a share, for changing costs a wait.
_MARGIN = 0.05


class FewRows:
    """The rule of `psd`.

    Args:
        drafts: tokens drafted in each call; at least 1.
        costs: of passes.
        acceptance: of drafts.
        ahead: whether rows can be drafted ahead.

    Attributes:
        why: the reason for the last change, in words.
    """

    def __init__(self, drafts: int, costs: Costs, acceptance: Acceptance, *, ahead: bool) -> None:
        self._two = Choice(Way.TWO, drafts)
        self._others = [Choice(Way.ONE, drafts)]
        if ahead and drafts > 1:
            self._others.append(Choice(Way.AHEAD, drafts))
        self._costs, self._acceptance = costs, acceptance
        self.why = f"{in_words(self._two)}: until few rows are left"

    def choose(self, load: Load, now: Choice) -> Choice:
        """Two batches while rows wait or half of the places are taken, else what is clearly faster."""
        chosen = self._choose(load, now)
        if chosen.way is not now.way and chosen == self._two:
            self.why = f"{in_words(chosen)}: {load.rows} of {load.places} places taken"
        return chosen

    def _choose(self, load: Load, now: Choice) -> Choice:
        # Few are left: newcomers would only have to be parted again.
        if load.waiting or not load.rows or 2 * load.rows > load.places:
            return self._two
        if now not in self._others:
            now = self._two
        stay = self._rate(now, load.rows)
        if stay is None:
            return self._two
        rates = ((self._rate(other, load.rows) or 0.0, other) for other in (self._two, *self._others))
        best, choice = max(rates, key=lambda pair: pair[0])
        if choice == now or best <= (1 + _MARGIN) * stay:
            return now
        self.why = change(choice, best, stay)
        return choice

    def _rate(self, choice: Choice, rows: int) -> float | None:
        """None where a batch so large was never verified."""
        if not self._costs.known(step(choice, rows, self._acceptance).tokens):
            return None
        return tokens_per_ms(choice, rows, self._costs, self._acceptance)
