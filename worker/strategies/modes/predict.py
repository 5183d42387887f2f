"""What a choice gives, by what passes cost and how many drafts are accepted: tokens a millisecond of all rows together.

With n rows, E(k) tokens of a row that is verified with k drafts, V and t of what is in a batch, and h of a step that
nothing hides:

    TWO     n/2 E(k) / (max(V, t) + h)      V, t of n/2 rows
    ONE     n E(k) / (V + t + h)
    AHEAD   n E / (max(V, t) + h)           E, V and t in the mean of rows that hit and rows that missed

Without drafts the drafter only keeps up: its pass hides behind V in both ways (MineDraft, arXiv 2603.18016, "Theory";
there V and t do not depend on what is in a batch). E(0) is 1, and what found drafts bring beside (`sources/`).

**Ahead** (PEARL, arXiv 2408.11850) a row has hit when all its drafts were accepted and the guess at what follows them
was right: k right ones of k. Then it is verified with k - 1 drafts; else with none, and hits when one guess was right.
So the share h of rows that have hit is h p(k) + (1 - h) p(1), with p(j) the chance that j drafts in a row are right.
"""

from typing import NamedTuple, Protocol

from worker.strategies.modes.prompts import NOTHING, Reading
from worker.strategies.seam import Choice, Way


class Times(Protocol):
    """What passes cost, ms: `costs.Costs`, or what is known of devices."""

    def verify_ms(self, requests: float, tokens: float) -> float | None:
        """V."""

    def draft_ms(self, requests: float, tokens: float, drafts: int) -> float | None:
        """t; `tokens` are those of the first pass."""

    def host_ms(self, way: Way, drafting: bool) -> float:
        """What of a step nothing hides, with drafts or without."""

    def verify_slope(self, tokens: float) -> float:
        """What one more verified token takes."""


class Accepted(Protocol):
    """How many drafts are accepted: `acceptance.Acceptance`, or what is known of a pair."""

    def at(self, position: int) -> float:
        """The share at a position, from 0, where all before were."""

    def tokens(self, drafts: int) -> float:
        """What a row gets that is verified with so many, in the mean."""

    def asked(self, drafts: int) -> tuple[float, float]:
        """What is verified of a row, and what it gets, where so many drafts are asked for and some may be trimmed."""


class Step(NamedTuple):
    """A step in the mean.

    Attributes:
        rows: verified in it.
        tokens: verified, drafts and all.
        gained: tokens that rows get.
    """

    rows: float
    tokens: float
    gained: float


def step(choice: Choice, rows: float, acceptance: Accepted) -> Step:
    """What is in a step.

    Args:
        choice: what is done.
        rows: that run, in all batches.
        acceptance: of drafts.
    """
    if choice.way is Way.AHEAD:
        hit = _hits(choice.drafts, acceptance)
        left = choice.drafts - 1
        return Step(rows, rows * (1 + hit * left), rows * (hit * acceptance.tokens(left) + 1 - hit))
    # One row alone is in every second step only.
    batch = rows / 2 if choice.way is Way.TWO else rows
    verified, gained = acceptance.asked(choice.drafts)
    return Step(batch, batch * verified, batch * gained)


def step_ms(choice: Choice, made: Step, costs: Times, reading: Reading = NOTHING) -> float | None:
    """How long a step takes in the mean; None before V and t were measured.

    Args:
        choice: what is done.
        made: what is in it.
        costs: of passes.
        reading: prompts that are read beside.
    """
    cases: list[tuple[float, float, float]] = []  # how likely, V, t
    for share, tokens in _with_prompts(made, reading):
        verify = costs.verify_ms(made.rows, tokens)
        draft = costs.draft_ms(made.rows, tokens, choice.drafts)
        if verify is None or draft is None:
            return None
        cases.append((share, verify, draft))
    if choice.way is Way.ONE and choice.drafts:
        passes = sum(share * (verify + draft) for share, verify, draft in cases)
    elif choice.way is Way.AHEAD:
        passes = sum(share * max(verify, draft) for share, verify, draft in cases)
    else:  # the drafter is at the batch of the call before
        passes = sum(a * b * max(verify, draft) for a, verify, _ in cases for b, _, draft in cases)
    return passes + costs.host_ms(choice.way, choice.drafts > 0)


def tokens_per_ms(
    choice: Choice, rows: float, costs: Times, acceptance: Accepted, reading: Reading = NOTHING
) -> float | None:
    """What all rows get in a millisecond; None before V and t were measured.

    Args:
        choice: what is done.
        rows: that run, in all batches; above 0.
        costs: of passes.
        acceptance: of drafts.
        reading: prompts that are read beside.
    """
    made = step(choice, rows, acceptance)
    ms = step_ms(choice, made, costs, reading)
    return made.gained / ms if ms else None


def price(choice: Choice, rows: float, costs: Times, acceptance: Accepted) -> float:
    """What one more verified token costs, in tokens that the devices make meanwhile (`Lengths.most`).

    0 where it costs no time: while V does not grow with the tokens, or hides behind t; and where that is not known.

    Args:
        choice: what is done.
        rows: that run, in all batches.
        costs: of passes.
        acceptance: of drafts.
    """
    if not rows:
        return 0.0
    made = step(choice, rows, acceptance)
    verify, draft = costs.verify_ms(made.rows, made.tokens), costs.draft_ms(made.rows, made.tokens, choice.drafts)
    if not verify or draft is None or (choice.way is not Way.ONE and draft > verify):
        return 0.0
    ms = step_ms(choice, made, costs)
    return costs.verify_slope(made.tokens) * made.gained / ms if ms else 0.0


def _with_prompts(made: Step, reading: Reading) -> list[tuple[float, float]]:
    """How likely a pass is to be with prompts or without, and its tokens.

    Prompts come in lumps: a pass that is bound by the weights has room for a few tokens more, and none for a prompt, so
    the mean over passes is not the pass of the mean.
    """
    read = reading.share * made.gained
    if not read:
        return [(1.0, made.tokens)]
    often = min(1.0, read / reading.lump)
    return [(1 - often, made.tokens), (often, made.tokens + read / often)]


def _hits(drafts: int, acceptance: Accepted) -> float:
    """The share of rows that have hit, in the steady state."""
    right = acceptance.tokens(drafts) - acceptance.tokens(drafts - 1)
    first = acceptance.at(0)
    return first / (1 - right + first) if first else 0.0
