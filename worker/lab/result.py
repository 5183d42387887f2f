"""What `worker bench` measures, as plain data: one `Turn` a scenario and turn, and medians over turns."""

import statistics
from dataclasses import dataclass, fields
from typing import Literal

from worker.strategies.seam import Strategy

_PLAIN = Strategy()

Mode = Literal["ar", "sd", "psd", "run-batch"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to answer the rows.

    Attributes:
        name: in tables, e.g. `sd(m)`.
        mode: the engine's mode; `run-batch` is vLLM's own program, without drafts.
        in_flight: rows in the engine at once.
        drafts: drafted tokens a step; 0 without speculation.
        devices: how many it computes on.
        strategy: of mode `psd`.
    """

    name: str
    mode: Mode
    in_flight: int
    drafts: int
    devices: int
    strategy: Strategy = _PLAIN

    @property
    def overlaps(self) -> bool:
        """Whether it is `sd(m)` in two batches that overlap, and nothing else: no strategy."""
        return self.mode == "psd" and self.strategy == _PLAIN

    @property
    def batch(self) -> int:
        """Requests that are verified together, at most; in two batches, while rows are many."""
        two = self.mode == "psd" and self.strategy.mode == "psd"
        return (self.in_flight + 1) // 2 if two else self.in_flight


@dataclass(frozen=True, slots=True)
class Turn:
    """One scenario, run once over all rows. None where nothing was measured.

    The steady part is all steps in which every row in flight decodes and none reads its prompt; the whole run is from
    the first row given to the last one answered.

    Attributes:
        seconds: of the whole run.
        tokens: of all answers.
        tokens_per_s: of the whole run.
        steady_tokens_per_s: in the steady part.
        ms_per_token: mean over rows: from the first token to the last, over all tokens but the first (vLLM's own
            `vllm:request_time_per_output_token_seconds`).
        verify_ms: V, median, steady.
        draft_ms: t, median, steady.
        step_ms: median, steady.
        hidden_share: draft time inside verify time, of the most that could be, steady.
        step_over_longer: step / max(t, V).
        verifier_idle: share of the steady part in which the target's devices verify nothing.
        drafter_idle: the same of the drafter's device; where one set of devices does both, None.
        verifier_idle_whole: as `verifier_idle`, of the whole run.
        drafter_idle_whole: as `drafter_idle`, of the whole run.
        lane_idle_whole: one of these two: that of the lane with the longer time, V or t, which no run can be faster
            than; None where one set of devices does both.
        acceptance: accepted over verified drafts.
        acceptance_at: the same for each position (verified drafts whose predecessors were all accepted count).
        verified_drafts: drafts that a row which reads no prompt has verified in a call, in the mean, whole run.
        in_two: of mode `psd`, the share of its calls in which two batches take turns; None: none.
        in_one: the same of one batch that is drafted for and verified in turn.
        ahead: the same of one batch that is drafted ahead for.
        imbalance: mean of |a - b| / (a + b) for the requests a, b of calls that follow each other, while two batches
            take turns.
        work_imbalance: the same mean for the verify work a, b of those calls: what their requests verify, one token
            each and their drafts, without prompts.
        skewed_share: share of those pairs of calls whose work differs by more than a request's and by more than 10 %.
        steady_steps: how many steps the steady part has.
        tail_s: seconds at the end of the whole run in which places are empty, as no row waits any more.
        same_texts: share of the rows whose text is that of `ar`.
        lost_records: stage records that were overwritten before they were read; None where all are there.
    """

    seconds: float
    tokens: int
    tokens_per_s: float
    steady_tokens_per_s: float | None = None
    ms_per_token: float | None = None
    verify_ms: float | None = None
    draft_ms: float | None = None
    step_ms: float | None = None
    hidden_share: float | None = None
    step_over_longer: float | None = None
    verifier_idle: float | None = None
    drafter_idle: float | None = None
    verifier_idle_whole: float | None = None
    drafter_idle_whole: float | None = None
    lane_idle_whole: float | None = None
    acceptance: float | None = None
    acceptance_at: tuple[float, ...] = ()
    verified_drafts: float | None = None
    in_two: float | None = None
    in_one: float | None = None
    ahead: float | None = None
    imbalance: float | None = None
    work_imbalance: float | None = None
    skewed_share: float | None = None
    steady_steps: int = 0
    tail_s: float | None = None
    same_texts: float | None = None
    lost_records: int | None = None


#: The measures of a turn that have a median.
MEASURES = tuple(field.name for field in fields(Turn) if field.name != "acceptance_at")


@dataclass(frozen=True, slots=True)
class Spread:
    """A measure over turns."""

    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Result:
    """A scenario's turns."""

    scenario: Scenario
    turns: tuple[Turn, ...]

    def spread(self, measure: str) -> Spread | None:
        """The median and the extremes of a measure over the turns that have it; None where none has."""
        values = [value for turn in self.turns if (value := getattr(turn, measure)) is not None]
        return Spread(statistics.median(values), min(values), max(values)) if values else None

    def median(self, measure: str) -> float | None:
        """The median alone."""
        spread = self.spread(measure)
        return None if spread is None else spread.median


@dataclass(frozen=True, slots=True)
class Bench:
    """All that one run of `worker bench` found.

    Attributes:
        pair: what was measured, in words: models, or the profile's name.
        virtual: whether devices were imagined (`worker.lab.virtual`); nothing about such a result may look real.
        rows: how many.
        max_tokens: of each answer, in the mean.
        quiet: whether nothing else disturbed; without it there is no result, only numbers.
        disturbance: what did, in words; empty when quiet.
        results: one for each scenario.
        machine: where, in words.
        least_tokens: what the row with the shortest answer asks for; 0 where a row does not say.
        most_tokens: the same of the longest.
    """

    pair: str
    virtual: bool
    rows: int
    max_tokens: int
    quiet: bool
    disturbance: str
    results: tuple[Result, ...]
    machine: str
    least_tokens: int = 0
    most_tokens: int = 0

    def find(self, name: str) -> Result | None:
        """The result of the scenario of that name."""
        return next((result for result in self.results if result.scenario.name == name), None)
