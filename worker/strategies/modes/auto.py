"""Any way and any number of drafts: the one that gives the most tokens by measured times, found and followed.

**Survey.** At first a few calls each are made in one batch with all drafts, in two, and without drafts. From those V, t
and the acceptance are known for sizes that lie between, and so what every choice would give (`predict.py`).

While rows join in numbers, calls mostly read prompts and say little of the rest: the survey begins when three quarters
of the places are taken (or after 100 calls, where that is how it stays), and probes last so much longer.

**Change.** What another choice would have given more than the one that runs adds up, in calls; when the sum is what a
change costs, the change is made. So a choice that is twice as good is taken up within a call or two, another way that
is better by a hundredth after a hundred calls (another number of drafts, which costs less to change, after 25), and one
that only seems better now and then never: hysteresis without a threshold (the "ski rental" rule: whoever rents until
the rent has cost what buying would pays twice what was needed at most).

**Probes.** Nothing is learnt about more drafts than are verified, nor about passes of a size that is never tried, nor
about what a step of a way takes that is not taken (`hosts.py`). So a choice that may be better by what is not known
well is tried for a few calls, as often as it costs at most a hundredth of the time.
"""

from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.modes.predict import step, step_ms, tokens_per_ms
from worker.strategies.modes.prompts import NOTHING, Prompts, Reading
from worker.strategies.modes.words import change, in_words
from worker.strategies.seam import Choice, Load, Way

#: Of the places, the share that is free while rows join in numbers; so many calls in a row are no beginning any more.
_JOINING, _BEGINNING = 0.25, 100
#: Calls between two looks at all choices, while about as many rows run.
_EVERY = 8
#: Rows that changed by this share are another load.
_CHANGED = 0.1
#: What changing costs, in calls: rows wait for those of the other batch, or for drafts.
_CHANGE, _CHANGE_DRAFTS = 1.0, 0.25
#: Of the time, what probes may cost.
_PROBING = 0.01
#: What a probe costs by itself, in calls: two changes, and that what it seems to give is not known well.
_DISTURBANCE = 3.0
#: A choice is probed if it would give at least this share of the best by what little is known.
_PROMISING = 0.9
#: A probe lasts so many calls; where acceptance is to be learnt, until about so many rows were verified, or so many
#: calls were made.
_LEAST, _ROWS, _MOST = 6, 48, 24


class Auto:
    """The mode `auto`.

    Args:
        drafts: tokens drafted in each call, at most; at least 1.
        costs: of passes.
        acceptance: of drafts.
        prompts: that are read.
        ahead: whether rows can be drafted ahead.

    Attributes:
        why: the reason for the last change, in words.
    """

    def __init__(self, drafts: int, costs: Costs, acceptance: Acceptance, prompts: Prompts, *, ahead: bool) -> None:
        self._costs, self._acceptance, self._prompts = costs, acceptance, prompts
        self._choices = [
            *(Choice(way, count) for way in (Way.ONE, Way.TWO) for count in range(drafts + 1)),
            *(Choice(Way.AHEAD, count) for count in range(2, drafts + 1) if ahead),
        ]
        self._survey = [Choice(Way.ONE, drafts), Choice(Way.TWO, drafts), Choice(Way.ONE, 0)]
        self._chosen = self._survey[0]  # to come back to after a probe
        self._probed: Choice | None = None
        self._probe_calls = 0  # left
        self._joining = 0  # calls in a row in which rows joined in numbers
        self._calls = 0  # since all choices were looked at
        self._rows = 0  # then
        self._missed: dict[Choice, float] = {}  # calls that each would have saved
        self._allowance_ms = 0.0  # for probes
        self.why = f"{in_words(self._chosen)}: nothing is measured yet"

    def choose(self, load: Load, now: Choice) -> Choice:
        """What gives the most, or is tried."""
        del now  # the engine goes back to plain decoding by itself when it has no drafter
        if not load.rows:
            return self._chosen
        joining = self._is_joining(load)
        if self._probed is not None:
            if self._probe_calls:
                self._probe_calls -= not joining
                return self._probed
            if self._probed != self._chosen:
                self.why = f"{in_words(self._chosen)}: after a probe"
            self._probed = None
        if self._survey:
            first = len(self._survey) == 3
            if first and joining:  # reading prompts hides best in two batches
                self.why = f"{in_words(self._survey[1])}: rows join"
                return self._survey[1]
            self._chosen = self._survey.pop(0)
            calls = _for_acceptance(load.rows) if first else _LEAST
            return self._probe(self._chosen, calls, "to measure it")
        self._calls += 1
        if self._calls < _EVERY and abs(load.rows - self._rows) <= _CHANGED * self._rows:
            return self._chosen
        return self._look(load)

    def _is_joining(self, load: Load) -> bool:
        """Whether calls mostly read prompts, and that is not how they always are."""
        many = 4 * load.reading > load.rows or (load.waiting and load.rows < (1 - _JOINING) * load.places)
        self._joining = self._joining + 1 if many else 0
        return 0 < self._joining <= _BEGINNING

    def _look(self, load: Load) -> Choice:
        calls, self._calls, self._rows = self._calls, 0, load.rows
        rates = {choice: rate for choice in self._choices if (rate := self._rate(choice, load)) is not None}
        if not rates:
            return self._chosen
        best = max(rates, key=lambda choice: rates[choice])
        stay = rates.get(self._chosen)
        if stay is None:  # one row is left of two batches
            return self._change(best, f"{in_words(best)}: one row is left")
        for choice, rate in rates.items():
            self._missed[choice] = max(0.0, self._missed.get(choice, 0.0) + calls * (rate / stay - 1))
        self._allowance_ms += _PROBING * calls * (self._step_ms(self._chosen, load) or 0.0)
        cost = _CHANGE_DRAFTS if best.way is self._chosen.way else _CHANGE
        if self._missed[best] > cost:
            return self._change(best, change(best, rates[best], stay))
        return self._try(rates, stay, load)

    def _change(self, choice: Choice, why: str) -> Choice:
        self._missed.clear()
        self._chosen, self.why = choice, why
        return choice

    def _try(self, rates: dict[Choice, float], stay: float, load: Load) -> Choice:
        """Probe what is not known well, if there is such a choice and it may cost what it does."""
        # The least that a probe costs comes first: it is asked in every look, and is seldom there.
        if self._allowance_ms < _DISTURBANCE * (self._step_ms(self._chosen, load) or 0.0):
            return self._chosen
        hopes = {choice: self._hoped(choice, rate, load) for choice, rate in rates.items()}
        others = sorted(hopes, key=lambda choice: -hopes[choice])
        probed = next((choice for choice in others if self._unsure(choice, hopes[choice] / stay, load)), None)
        if probed is None:
            self._allowance_ms = 0.0
            return self._chosen
        made = step(probed, load.rows, self._acceptance)
        taken = made.gained / hopes[probed]
        calls = _LEAST if self._chosen.drafts else _for_acceptance(load.rows)
        lost = calls * max(0.0, 1 - hopes[probed] / stay) + _DISTURBANCE
        if self._allowance_ms < lost * taken:
            return self._chosen
        self._allowance_ms = 0.0
        return self._probe(probed, calls, "a probe")

    def _unsure(self, choice: Choice, share: float, load: Load) -> bool:
        """Whether it may be better than it seems to be: at best `share` times as good as what is chosen."""
        more = choice.drafts > self._chosen.drafts
        return choice != self._chosen and (more or (share > _PROMISING and not self._known(choice, load)))

    def _hoped(self, choice: Choice, rate: float, load: Load) -> float:
        """What it would give if its steps, where they are not known, had as little that nothing hides as any."""
        drafting = choice.drafts > 0
        if self._costs.host_known(choice.way, drafting):
            return rate
        gained = step(choice, load.rows, self._acceptance).gained
        more = self._costs.host_ms(choice.way, drafting) - self._costs.least_host_ms(drafting)
        return gained / (gained / rate - more)

    def _probe(self, choice: Choice, calls: int, why: str) -> Choice:
        self._probed, self._probe_calls = choice, calls - 1
        self.why = f"{in_words(choice)}: {why}"
        return choice

    def _rate(self, choice: Choice, load: Load) -> float | None:
        if choice.way is Way.TWO and load.rows < 2:
            return None  # one batch, whatever it is called
        return tokens_per_ms(choice, load.rows, self._costs, self._acceptance, self._reading(load))

    def _step_ms(self, choice: Choice, load: Load) -> float | None:
        made = step(choice, load.rows, self._acceptance)
        return step_ms(choice, made, self._costs, self._reading(load))

    def _reading(self, load: Load) -> Reading:
        return self._prompts.reading if load.waiting or load.reading else NOTHING

    def _known(self, choice: Choice, load: Load) -> bool:
        host_known = self._costs.host_known(choice.way, choice.drafts > 0)
        return host_known and self._costs.known(step(choice, load.rows, self._acceptance).tokens)


def _for_acceptance(rows: int) -> int:
    """Calls after which something is known of the acceptance."""
    return min(_MOST, max(_LEAST, -(-_ROWS // rows)))
