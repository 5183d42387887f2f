"""What stage records say about the two batches, from the ranks' `Records` as `StageReader` gives them.

The words are the project's: **V**, the verify pass of a batch without its wait for drafts; **t**, the drafter's propose
call for a batch; **step**, from one verify pass's start to the next one's; **hidden share**, draft time inside verify
time over the smaller of the two. Times are ns of one clock, begin and end of an interval as int64 [n, 2].
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.minedraft.stages import RECORD, Records, Stage

#: Intervals, int64 [n, 2] in ns: sorted, and disjoint but for shared ends.
Spans = NDArray[np.int64]
#: Numbers of calls, int64 [n], ascending.
Calls = NDArray[np.int64]

_NS_PER_MS = 1e6
_NEVER = np.iinfo(np.int64).min


def verify_spans(records: Records) -> Spans:
    """V of each call that has one: from the start of preparing to the end of sampling."""
    return _spans(records, Stage.PREPARE, Stage.SAMPLE)


def draft_spans(records: Records) -> Spans:
    """t of each call that has one."""
    return stage_spans(records, Stage.DRAFT)


def stage_spans(records: Records, stage: Stage) -> Spans:
    """The stage in each call in which it happened."""
    return _spans(records, stage, stage)


def overlap_ns(a: Spans, b: Spans) -> int:
    """The length of what `a` and `b` have in common, in ns."""
    return int((_covered(b, a[:, 1]) - _covered(b, a[:, 0])).sum())


def steady(verifier: Records, drafter: Records) -> Calls:
    """The calls of the steady part: both batches have requests, and all of those decode.

    These are the calls that were verified and drafted and whose neighbours in number were verified, too (an empty
    batch leaves no record), with no request that reads its prompt in any of the three.
    """
    calls = verifier["call"][_did(verifier, Stage.PREPARE, Stage.SAMPLE) & (verifier["prefill"] == 0)]
    drafted = drafter["call"][_did(drafter, Stage.DRAFT, Stage.DRAFT)]
    chosen: Calls = calls[np.isin(calls - 1, calls) & np.isin(calls + 1, calls) & np.isin(calls, drafted)]
    return chosen


def step_spans(verifier: Records, calls: Calls) -> Spans:
    """The steps that begin with the given steady calls."""
    starts = verifier["begin"][:, Stage.PREPARE]
    at = np.searchsorted(verifier["call"], calls)
    return np.stack([starts[at], starts[at + 1]], axis=1)


def hidden_share(drafter: Records, verifier: Records) -> float | None:
    """The hidden share of the steady part, from 0 to 1; None when there is no such part."""
    calls = steady(verifier, drafter)
    return share_of(draft_spans(drafter), verify_spans(of_calls(verifier, calls)), step_spans(verifier, calls))


def share_of(drafts: Spans, passes: Spans, steps: Spans) -> float | None:
    """The hidden share in the given steps, whose passes these are; None without drafts in them."""
    most = min(overlap_ns(drafts, steps), total_ns(passes))
    return overlap_ns(drafts, passes) / most if most else None


@dataclass(frozen=True)
class Summary:
    """A run in numbers; None where nothing was measured.

    Attributes:
        steady_calls: calls of the steady part, which all times and the hidden share are about.
        verify_ms: median V.
        draft_ms: median t.
        step_ms: median step.
        verifier_wait_ms: median wait of the verifier for drafts.
        drafter_wait_ms: median wait of the drafter for sampled tokens.
        hidden_share: the hidden share.
        acceptance: accepted drafts over scheduled ones, of the positions that are counted, over the whole run.
        acceptance_at: the same for each position, to the last that was drafted.
        mean_requests: requests in a batch that is not empty, over the whole run.
    """

    steady_calls: int
    verify_ms: float | None
    draft_ms: float | None
    step_ms: float | None
    verifier_wait_ms: float | None
    drafter_wait_ms: float | None
    hidden_share: float | None
    acceptance: float | None
    acceptance_at: tuple[float, ...]
    mean_requests: float | None


def summary(verifier: Records, drafter: Records) -> Summary:
    """Summarize the records of a verifier, any one, and of the drafter."""
    calls = steady(verifier, drafter)
    verified, drafted = of_calls(verifier, calls), of_calls(drafter, calls)
    accepted_at, drafted_at = verifier["accepted"].sum(axis=0), verifier["drafted_at"].sum(axis=0)
    positions = np.flatnonzero(drafted_at)
    return Summary(
        steady_calls=len(calls),
        verify_ms=median_ms(verify_spans(verified)),
        draft_ms=median_ms(draft_spans(drafted)),
        step_ms=median_ms(step_spans(verifier, calls)),
        verifier_wait_ms=median_ms(stage_spans(verified, Stage.RECV)),
        drafter_wait_ms=median_ms(stage_spans(drafted, Stage.RECV)),
        hidden_share=hidden_share(drafter, verifier),
        acceptance=float(accepted_at.sum() / drafted_at.sum()) if positions.size else None,
        acceptance_at=tuple((accepted_at[positions] / drafted_at[positions]).tolist()),
        mean_requests=float(verifier["requests"].mean()) if len(verifier) else None,
    )


class HiddenTime:
    """Adds up draft time inside verify time while records come in, cut in any way and either side first.

    A draft is held back until a verify pass is known that ended later: until then a pass that overlaps it may come.
    """

    #: Passes kept for drafts to come. In lockstep the drafter is at most a few calls behind, so only the rest of
    #: one reading matters.
    MOST_PASSES = 4096

    def __init__(self) -> None:
        self._drafts = self._passes = draft_spans(np.empty(0, RECORD))
        self._verified_ns = self._drafted_ns = 0

    def add(self, verifier: Records, drafter: Records) -> int:
        """Take new records of a verifier and of the drafter.

        Returns:
            The hidden time that became certain, in ns.
        """
        drafts, passes = draft_spans(drafter), verify_spans(verifier)
        self._drafts = np.concatenate([self._drafts, drafts])
        self._passes = np.concatenate([self._passes, passes])[-self.MOST_PASSES :]
        self._verified_ns = int(passes[-1, 1]) if len(passes) else self._verified_ns
        self._drafted_ns = int(drafts[-1, 1]) if len(drafts) else self._drafted_ns
        certain = int(np.searchsorted(self._drafts[:, 1], self._verified_ns, side="right"))
        hidden = overlap_ns(self._drafts[:certain], self._passes)
        self._drafts = self._drafts[certain:]
        needed_ns = self._drafts[0, 0] if len(self._drafts) else self._drafted_ns
        self._passes = self._passes[self._passes[:, 1] > needed_ns]
        return hidden

    def rest(self) -> int:
        """The hidden time of the drafts held back, in ns, when no more records will come."""
        return overlap_ns(self._drafts, self._passes)


def _did(records: Records, first: Stage, last: Stage) -> NDArray[np.bool_]:
    did: NDArray[np.bool_] = (records["begin"][:, first] > 0) & (records["end"][:, last] > 0)
    return did


def _spans(records: Records, first: Stage, last: Stage) -> Spans:
    both: Spans = np.stack([records["begin"][:, first], records["end"][:, last]], axis=1)
    return both[_did(records, first, last)]


def of_calls(records: Records, calls: Calls) -> Records:
    """The records of the given calls."""
    return records[np.isin(records["call"], calls)]


def total_ns(spans: Spans) -> int:
    """How long they are together, in ns."""
    return int((spans[:, 1] - spans[:, 0]).sum())


def _covered(spans: Spans, until: NDArray[np.int64]) -> NDArray[np.int64]:
    """How much of the spans lies before each of the times, in ns."""
    index = np.searchsorted(spans[:, 0], until, side="right")
    whole = np.concatenate([[0], (spans[:, 1] - spans[:, 0]).cumsum()])[index]
    end = np.concatenate([[_NEVER], spans[:, 1]])[index]
    covered: NDArray[np.int64] = whole - (np.maximum(end, until) - until)
    return covered


def median_ms(spans: Spans) -> float | None:
    """How long the middle one is; None when there are none."""
    return float(np.median(spans[:, 1] - spans[:, 0])) / _NS_PER_MS if len(spans) else None
