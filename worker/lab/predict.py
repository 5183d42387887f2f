"""What a scenario does, computed from timings: step, throughput, latency.

A step of `sd` takes V + t, one of `psd` max(V, t), one of `ar` V; each also takes what the host does and nothing hides.
A verified request gets E tokens (`tokens_a_cycle`). `sd` verifies all requests in flight each step, `psd` half of them.
"""

import math
from dataclasses import dataclass

from worker.lab.profile import tokens_a_cycle
from worker.lab.result import Scenario
from worker.lab.timings import Timings

#: Cases that are less likely than this are left out of a mean.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True, slots=True)
class Workload:
    """The rows, in the mean.

    Attributes:
        prompt_tokens: of a row.
        output_tokens: of a row's answer, at least 1.
    """

    prompt_tokens: int = 0
    output_tokens: int = 256

    @property
    def context(self) -> int:
        """What lies before a row that is being answered, in the mean."""
        return self.prompt_tokens + self.output_tokens // 2


@dataclass(frozen=True, slots=True)
class Prediction:
    """A scenario in numbers.

    The steady part is as in `Turn`: every row in flight decodes. `tokens_per_s` is of a run that never ends, in which
    each row that is done is replaced by one whose prompt must be read: a real run's without its start and its end.

    Attributes:
        scenario: which.
        verify_ms: V, steady.
        draft_ms: t, steady; 0 without drafts.
        step_ms: steady.
        tokens_a_cycle: what a row gets when it is verified.
        steady_tokens_per_s: in the steady part.
        tokens_per_s: with the prompts.
    """

    scenario: Scenario
    verify_ms: float
    draft_ms: float
    step_ms: float
    tokens_a_cycle: float
    steady_tokens_per_s: float
    tokens_per_s: float

    @property
    def ms_per_token(self) -> float:
        """What a row waits for each of its tokens, with the prompts (in flight = throughput x time in flight)."""
        return 1e3 * self.scenario.in_flight / self.tokens_per_s

    @property
    def tokens_per_s_per_device(self) -> float:
        """With the prompts."""
        return self.tokens_per_s / self.scenario.devices


def predict(timings: Timings, scenario: Scenario, workload: Workload) -> Prediction:
    """Predict a scenario, any but `run-batch`.

    Args:
        timings: of the scenario's devices; for `psd`, all but the drafter's hold the target.
        scenario: which.
        workload: what its rows are like.
    """
    step = _Step(timings, scenario, workload)
    cycle = tokens_a_cycle([timings.accepted_at(position) for position in range(scenario.drafts)])
    verified = scenario.in_flight / 2 if scenario.mode == "psd" else scenario.in_flight
    steady_ms = step.ms(0, 0)
    # A row is in one pass with its prompt, which gives its first token, and then in (output - 1) / E passes.
    passes_a_row = 1 + (workload.output_tokens - 1) / cycle
    running_ms = step.mean_ms(verified / passes_a_row)
    return Prediction(
        scenario=scenario,
        verify_ms=step.verify_ms(0),
        draft_ms=step.draft_ms(0),
        step_ms=steady_ms,
        tokens_a_cycle=cycle,
        steady_tokens_per_s=1e3 * verified * cycle / steady_ms,
        tokens_per_s=1e3 * verified * workload.output_tokens / passes_a_row / running_ms,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """Times of a scenario's step, as functions of how many of a batch's requests read their prompt."""

    timings: Timings
    scenario: Scenario
    workload: Workload

    def verify_ms(self, fresh: int) -> float:
        return self.timings.verify_ms(self.scenario.batch - fresh, self.scenario.drafts, **self._sizes(fresh))

    def draft_ms(self, fresh: int) -> float:
        return self.timings.draft_ms(self.scenario.batch - fresh, self.scenario.drafts, **self._sizes(fresh))

    def ms(self, fresh: int, fresh_before: int) -> float:
        """A step; in `psd` the drafter works for the other batch meanwhile, in which `fresh_before` read theirs."""
        host_ms = self.timings.host_ms(self.scenario.mode, self.scenario.batch)
        if self.scenario.mode == "psd":
            return max(self.verify_ms(fresh), self.draft_ms(fresh_before)) + host_ms
        return self.verify_ms(fresh) + self.draft_ms(fresh) + host_ms

    def mean_ms(self, fresh: float) -> float:
        """The mean step when so many requests a pass read their prompt and rows end independently of each other.

        Prompts come in lumps: most passes of a weight-bound model have room for a few more tokens at no cost, and none
        has room for a whole prompt. So this is the mean over how many come together, not the step of the mean.
        """
        shares = _poisson(fresh, self.scenario.batch)
        if self.scenario.mode != "psd":
            return sum(share * self.ms(count, count) for count, share in enumerate(shares))
        verify = [self.verify_ms(count) for count in range(len(shares))]
        draft = [self.draft_ms(count) for count in range(len(shares))]
        longer = sum(a * b * max(verify[i], draft[j]) for i, a in enumerate(shares) for j, b in enumerate(shares))
        return longer + self.timings.host_ms("psd", self.scenario.batch)

    def _sizes(self, fresh: int) -> dict[str, int]:
        return {"context": self.workload.context, "prefill": fresh * self.workload.prompt_tokens}


def _poisson(mean: float, most: int) -> list[float]:
    """How likely 0, 1, 2, ... are, to the last that matters, and together 1."""
    shares: list[float] = []
    while len(shares) <= most and (len(shares) <= mean or shares[-1] > _NEGLIGIBLE):
        count = len(shares)
        # In logarithms: e to the power of -mean is nothing to a computer where the mean is large.
        logarithm = (count * math.log(mean) if count else 0.0) - mean - math.lgamma(count + 1)
        shares.append(math.exp(logarithm))
    total = sum(shares)
    if not total:  # all are beyond `most`
        return [0.0] * most + [1.0]
    return [share / total for share in shares]
