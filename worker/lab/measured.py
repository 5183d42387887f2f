"""Timings from a bench: what AR and SD took here, so that two batches and other sizes can be predicted from it.

V and t are those of `ar` and `sd`. Of `psd`, where the bench has it, only one thing is read: how much longer V and t
are where both lanes work at once, as on cores that share a memory.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from worker.lab.plan import Fleet
from worker.lab.result import Bench, Mode, Result

#: The gap between two verify passes in `psd`, ms: the batch that is next was scheduled during this one, and what is
#: left is to hand it over. On two quiet cores gaps were about this long.
PSD_GAP_MS = 1.0


class MeasuredError(Exception):
    """A bench does not tell enough; one line that says what is missing."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured points, straight lines between them; beyond the ends the lines go on, but never down.

    One point alone holds everywhere.

    Attributes:
        x: ascending, at least one.
        y: of each.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    @classmethod
    def through(cls, points: Iterable[tuple[float, float]]) -> "Curve":
        """The curve through (x, y) points in any order; where several have the same x, through their mean."""
        at: dict[float, list[float]] = defaultdict(list)
        for x, y in points:
            at[x].append(y)
        return cls(tuple(sorted(at)), tuple(statistics.fmean(at[x]) for x in sorted(at)))

    def scaled_to(self, x: float, y: float) -> "Curve":
        """The curve of the same shape that has the value y at x."""
        factor = y / self(x)
        return Curve(self.x, tuple(factor * value for value in self.y))

    def __call__(self, x: float) -> float:
        """The value at x, at least 0."""
        inside = float(np.interp(x, self.x, self.y))
        if len(self.x) == 1 or self.x[0] <= x <= self.x[-1]:
            return inside
        first, second = (0, 1) if x < self.x[0] else (-2, -1)
        slope = max(0.0, (self.y[second] - self.y[first]) / (self.x[second] - self.x[first]))
        beyond = x - (self.x[0] if x < self.x[0] else self.x[-1])
        return max(0.0, inside + slope * beyond)


@dataclass(frozen=True, slots=True)
class Measured:
    """The `Timings` of a pair on the devices where it was measured.

    The context is that of the bench's rows, whatever is asked for. A prompt's tokens cost the target as much as others,
    and the drafter as much less than the target as its drafts cost less than a plain pass.

    Attributes:
        verify: V by the tokens in a pass.
        draft: t of one draft by the requests in a batch.
        acceptance: `accepted_at` of each position.
        host: the rest of a step by its requests, of `ar` and of `sd`.
        psd_gap_ms: the rest of a step of `psd`.
    """

    verify: Curve
    draft: Curve
    acceptance: tuple[float, ...]
    host: dict[Mode, Curve]
    psd_gap_ms: float = PSD_GAP_MS

    @classmethod
    def of(cls, bench: Bench, devices: int, *, psd_gap_ms: float = PSD_GAP_MS) -> "Measured":
        """What a bench says about the target on so many devices.

        Raises:
            MeasuredError: no `ar` or `sd` row of these devices has a steady part.
        """
        results = _steady(bench, devices)
        if not results:
            raise MeasuredError(f"the bench has no steady part of ar or sd on {devices} devices")
        drafted = [result for result in results if result.scenario.drafts and result.median("draft_ms") is not None]
        if not drafted:
            raise MeasuredError(f"the bench has no sd on {devices} devices, and so nothing about the drafter")
        verify = ((_requests(one) * (one.scenario.drafts + 1), _of(one, "verify_ms")) for one in results)
        draft = [(_requests(one), _of(one, "draft_ms") / one.scenario.drafts) for one in drafted]
        return cls(
            verify=Curve.through(verify),
            draft=Curve.through(draft),
            acceptance=_acceptance(drafted),
            host=_host(results),
            psd_gap_ms=psd_gap_ms,
        )

    def verify_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """V, by the tokens in the pass alone."""
        return self.verify(requests * (drafts + 1) + prefill)

    def draft_ms(self, requests: int, drafts: int, *, context: int = 0, prefill: int = 0) -> float:
        """t; a prompt as said above."""
        if not drafts:
            return 0.0
        one = self.draft(requests)
        plain = self.verify(requests)
        return drafts * one + (self.verify(requests + prefill) - plain) * (one / plain if plain else 0.0)

    def accepted_at(self, position: int) -> float:
        """As measured; beyond the last position as there."""
        return self.acceptance[min(position, len(self.acceptance) - 1)]

    def host_ms(self, mode: Mode, requests: int) -> float:
        """As measured for the mode, or for the other one where only that was."""
        if mode == "psd":
            return self.psd_gap_ms
        curve = self.host.get(mode) or next(iter(self.host.values()))
        return curve(requests)


def measured_fleet(bench: Bench, devices: int, *, psd_gap_ms: float = PSD_GAP_MS) -> Fleet:
    """A bench's pair, with the target on N devices and, where that was measured, on N + 1.

    Raises:
        MeasuredError: no `ar` or `sd` row of N devices has a steady part.
    """
    on_n = Measured.of(bench, devices, psd_gap_ms=psd_gap_ms)
    elsewhere = [result for result in _steady(bench, devices + 1) if result.scenario.drafts]
    on_all = Measured.of(bench, devices + 1, psd_gap_ms=psd_gap_ms) if elsewhere else None
    if on_all is not None and len(on_all.verify.x) == 1:
        # One size says how much faster these devices are, and not what another size takes on them.
        on_all = replace(on_all, verify=on_n.verify.scaled_to(on_all.verify.x[0], on_all.verify.y[0]))
    return Fleet(devices=devices, on_n=on_n, on_all=on_all, two=_side_by_side(bench, on_n, devices))


def _side_by_side(bench: Bench, alone: Measured, devices: int) -> Measured | None:
    """The timings of lanes that work at once; None where the bench has no steady part of `psd`."""
    for result in bench.results:
        scenario, v, t = result.scenario, result.median("verify_ms"), result.median("draft_ms")
        if scenario.overlaps and scenario.devices == devices + 1 and v and t:
            tokens, one = scenario.batch * (scenario.drafts + 1), t / scenario.drafts
            return replace(
                alone,
                verify=alone.verify.scaled_to(tokens, v),
                draft=alone.draft.scaled_to(scenario.batch, one),
            )
    return None


def _steady(bench: Bench, devices: int) -> list[Result]:
    """The rows that were measured on so many devices without `psd`."""
    return [
        result
        for result in bench.results
        if result.scenario.mode in ("ar", "sd")
        and result.scenario.devices == devices
        and result.median("verify_ms") is not None
        and result.median("step_ms") is not None
    ]


def _requests(result: Result) -> int:
    return result.scenario.batch


def _of(result: Result, measure: str) -> float:
    value = result.median(measure)
    assert value is not None, f"{result.scenario.name} has no {measure}"
    return value


def _host(results: Sequence[Result]) -> dict[Mode, Curve]:
    points: dict[Mode, list[tuple[float, float]]] = defaultdict(list)
    for result in results:
        busy = _of(result, "verify_ms") + (result.median("draft_ms") or 0.0)
        points[result.scenario.mode].append((_requests(result), max(0.0, _of(result, "step_ms") - busy)))
    return {mode: Curve.through(of_mode) for mode, of_mode in points.items()}


def _acceptance(results: Sequence[Result]) -> tuple[float, ...]:
    """At each position that a turn has, the mean over turns; a `Turn`'s is of drafts whose predecessors all were."""
    shares: dict[int, list[float]] = defaultdict(list)
    for turn in (turn for result in results for turn in result.turns):
        for position, share in enumerate(turn.acceptance_at):
            shares[position].append(share)
    return tuple(statistics.fmean(shares[position]) for position in sorted(shares))
