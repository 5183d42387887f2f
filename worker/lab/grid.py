"""Is `auto` as good as whoever knows? It, each fixed choice, and plain decoding on a grid of imagined devices.

A cell is an acceptance, what drafting costs, rows in flight, the length of prompts, and a target:

    flat       V is 25 ms, whatever is in a batch
    roofline   V is 2 ms and 20 ms for the weights, in which 160 tokens are computed; context costs as well

The draft model's passes are the target's, scaled, so that t of 4 drafts over V, both of all rows in flight with 4
drafts each, is the cell's draft cost. Fixed choices that are far behind the best by the devices' true times are not
tried.
"""

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from rich.table import Table

from worker.lab.profile import PassCost, Profile, tokens_a_cycle
from worker.lab.simulate import Outcome, Work, simulate
from worker.strategies.modes.auto import Auto
from worker.strategies.modes.predict import tokens_per_ms
from worker.strategies.modes.words import in_words
from worker.strategies.seam import Choice, Way

ACCEPTANCE = (0.3, 0.7, 0.95)
DRAFT_COST = (0.05, 0.3, 0.9)
IN_FLIGHT = (2, 8, 32, 128)
PROMPT_TOKENS = (64, 1024)
TARGETS = {
    "flat": PassCost(25.0),
    "roofline": PassCost(2.0, floor_ms=20.0, token_ms=20.0 / 160, context_token_ms=2e-5),
}
#: The most that is drafted, and for how many a cell's draft cost is.
DRAFTS, COSTED = 5, 4
OUTPUT_TOKENS = 200
#: Rows for each place; the more, the less finding out costs.
_ROWS_A_PLACE = 12
_HOST_MS = 1.0
#: Fixed choices that should give less than this share of the best are not tried.
_WORTH_TRYING = 0.8
_COLUMNS = ("V", "accepted", "t/V", "in flight", "prompt", "auto tokens/s", "best fixed choice", "auto/best", "auto/ar")


@dataclass(frozen=True, slots=True)
class Cell:
    """Where `auto` is tried.

    Attributes:
        target: one of `TARGETS`.
        acceptance: of drafts, the same at each position.
        draft_cost: t over V.
        in_flight: rows at once.
        prompt_tokens: of a row.
    """

    target: str
    acceptance: float
    draft_cost: float
    in_flight: int
    prompt_tokens: int

    @property
    def profile(self) -> Profile:
        """Its devices."""
        target, rows = TARGETS[self.target], self.in_flight
        alike = Profile(self.target, 1, target, target)
        share = self.draft_cost * alike.verify_ms(rows, COSTED) / alike.draft_ms(rows, COSTED)
        draft = PassCost(
            target.fixed_ms * share,
            target.floor_ms * share,
            target.token_ms * share,
            target.context_token_ms * share,
        )
        return Profile(self.target, 1, target, draft, acceptance=(self.acceptance,))


@dataclass(frozen=True, slots=True)
class Found:
    """A cell's runs.

    Attributes:
        cell: which.
        auto: the run with `auto`.
        plain: plain decoding.
        best: the fixed choice that gave the most.
        fixed: its run.
    """

    cell: Cell
    auto: Outcome
    plain: Outcome
    best: Choice
    fixed: Outcome

    @property
    def to_best(self) -> float:
        """Throughput of `auto` over that of the best fixed choice."""
        return self.auto.tokens_per_s / self.fixed.tokens_per_s

    @property
    def to_plain(self) -> float:
        """Throughput of `auto` over that of plain decoding."""
        return self.auto.tokens_per_s / self.plain.tokens_per_s


#: All fixed choices.
_CHOICES = [
    *(Choice(way, drafts) for way in (Way.ONE, Way.TWO) for drafts in range(DRAFTS + 1)),
    *(Choice(Way.AHEAD, drafts) for drafts in range(2, DRAFTS + 1)),
]


@dataclass(frozen=True, slots=True)
class _True:
    """What a cell's devices take and accept, known beforehand (`predict.Times`, `predict.Accepted`)."""

    profile: Profile
    context: int

    def verify_ms(self, requests: float, tokens: float) -> float:
        return self.profile.target.ms(round(tokens), round(requests * self.context))

    def draft_ms(self, requests: float, tokens: float, drafts: int) -> float:
        return self.profile.passes_ms(round(requests), round(tokens), drafts, context=self.context)

    def host_ms(self, way: Way, drafting: bool) -> float:
        del way, drafting
        return _HOST_MS

    def verify_slope(self, tokens: float) -> float:
        return self.verify_ms(0, tokens + 1) - self.verify_ms(0, tokens)

    def at(self, position: int) -> float:
        return self.profile.accepted_at(position)

    def tokens(self, drafts: int) -> float:
        return tokens_a_cycle([self.at(position) for position in range(drafts)])

    def asked(self, drafts: int) -> tuple[float, float]:
        return 1.0 + drafts, self.tokens(drafts)


def cells() -> list[Cell]:
    """The whole grid."""
    return list(itertools.starmap(Cell, itertools.product(TARGETS, ACCEPTANCE, DRAFT_COST, IN_FLIGHT, PROMPT_TOKENS)))


def explore(cell: Cell) -> Found:
    """Run a cell: `auto`, and all fixed choices that may be the best."""
    profile = cell.profile
    work = Work(_ROWS_A_PLACE * cell.in_flight, cell.prompt_tokens, OUTPUT_TOKENS)

    def fixed(choice: Choice) -> Outcome:
        return simulate(profile, choice, work, places=cell.in_flight, drafts=DRAFTS, host_ms=_HOST_MS)

    auto = simulate(
        profile,
        lambda pace: Auto(DRAFTS, pace.costs, pace.acceptance, pace.prompts, ahead=True),
        work,
        places=cell.in_flight,
        drafts=DRAFTS,
        host_ms=_HOST_MS,
    )
    plain = fixed(Choice(Way.ONE, 0))
    known = _True(profile, cell.prompt_tokens + OUTPUT_TOKENS // 2)
    rates = {choice: tokens_per_ms(choice, cell.in_flight, known, known) or 0.0 for choice in _CHOICES}
    worth = [choice for choice in _CHOICES if rates[choice] >= _WORTH_TRYING * max(rates.values())]
    runs = {choice: fixed(choice) for choice in worth}
    runs[Choice(Way.ONE, 0)] = plain
    best = max(runs, key=lambda choice: runs[choice].tokens_per_s)
    return Found(cell, auto, plain, best, runs[best])


def explore_all(some: Iterable[Cell]) -> list[Found]:
    """Run cells, on all cores."""
    with ProcessPoolExecutor() as pool:
        return list(pool.map(explore, some))


def table(found: Sequence[Found]) -> Table:
    """All cells as a table, the worst last."""
    made = Table(title="virtual: auto on the grid", title_justify="left", box=None, pad_edge=False)
    for index, name in enumerate(_COLUMNS):
        made.add_column(name, justify="right" if index else "left")
    for one in sorted(found, key=lambda one: -min(one.to_best, one.to_plain)):
        cell = one.cell
        made.add_row(
            cell.target,
            f"{cell.acceptance:g}",
            f"{cell.draft_cost:.0%}",
            str(cell.in_flight),
            str(cell.prompt_tokens),
            f"{one.auto.tokens_per_s:,.0f}",
            in_words(one.best),
            f"{one.to_best:.3f}",
            f"{one.to_plain:.3f}",
        )
    return made
