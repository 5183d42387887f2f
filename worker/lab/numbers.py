"""From what the ranks recorded to what a turn says: pure, on top of `worker.minedraft.measures`.

One rule for all modes: the **steady part** is made of steps in which every row in flight decodes. V and t depend on how
many rows a batch has, so steps with fewer (at the start, the end, and while a row that ended is replaced) would blur
them, and they are not few in a short run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.lab.result import Mode, Turn
from worker.minedraft import measures
from worker.minedraft.measures import (
    Calls,
    Spans,
    draft_spans,
    median_ms,
    of_calls,
    overlap_ns,
    share_of,
    step_spans,
    total_ns,
    verify_spans,
)
from worker.minedraft.stages import DRAFTER, RECORD, Records, verifier_name
from worker.strategies.seam import Way

_NS_PER_S = 1e9
_NONE = np.empty(0, RECORD)
#: Two batches that differ by less are as equal as any rule can make them.
_SKEWED = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """What a row's way through the engine looked like from outside.

    Attributes:
        given_s: when the engine got it, by `time.monotonic` (the clock of the records, too).
        answered_s: when its answer was there.
        tokens: of its answer.
    """

    given_s: float
    answered_s: float
    tokens: int


def turn(
    mode: Mode,
    records: Mapping[str, Records],
    requests: Sequence[Request],
    in_flight: int,
    ms_per_token: float | None = None,
) -> Turn:
    """Compute what a turn says.

    Args:
        mode: the engine's; `psd` has a verifier and a drafter, `ar` and `sd` one rank that does both in a call.
        records: all of the turn, by the name of the rank; without those of `verifier_0`, only the whole run is told.
        requests: one for each row, at least one.
        in_flight: rows in the engine at once.
        ms_per_token: as in `Turn`.
    """
    verifier = records.get(verifier_name(0), _NONE)
    drafter = records.get(DRAFTER, _NONE) if mode == "psd" else verifier
    calls = steady_of_one(verifier, in_flight)
    if mode == "psd":  # in which rows may be in one batch, too
        calls = np.union1d(calls, steady_of_two(verifier, drafter, in_flight))
    begin, end = min(request.given_s for request in requests), max(request.answered_s for request in requests)
    tokens = sum(request.tokens for request in requests)
    whole = np.array([[begin * _NS_PER_S, end * _NS_PER_S]]).astype(np.int64)
    passes, drafts = verify_spans(verifier), draft_spans(drafter)
    steps, verified = step_spans(verifier, calls), of_calls(verifier, calls)
    verify_ms, draft_ms = median_ms(verify_spans(verified)), median_ms(draft_spans(of_calls(drafter, calls)))
    step_ms, longer_ms = median_ms(steps), max(verify_ms or 0, draft_ms or 0)
    made = int(verified["requests"].sum() + verified["accepted"].sum())
    counts = measures.summary(verifier, drafter)
    verifier_idle_whole = _idle(whole, passes) if len(verifier) else None
    drafter_idle_whole = _idle(whole, drafts) if mode == "psd" and len(drafter) else None
    two = mode == "psd" and verify_ms is not None and draft_ms is not None
    turns = verifier[verifier["way"] == Way.TWO]
    ways = {way: way_share(verifier, way) if mode == "psd" else None for way in Way}
    return Turn(
        seconds=end - begin,
        tokens=tokens,
        tokens_per_s=tokens / (end - begin),
        steady_tokens_per_s=made / total_ns(steps) * _NS_PER_S if len(steps) else None,
        ms_per_token=ms_per_token,
        verify_ms=verify_ms,
        draft_ms=draft_ms,
        step_ms=step_ms,
        hidden_share=share_of(drafts, verify_spans(verified), steps),
        step_over_longer=step_ms / longer_ms if step_ms and longer_ms else None,
        verifier_idle=_idle(steps, passes),
        verifier_idle_whole=verifier_idle_whole,
        drafter_idle=_idle(steps, drafts) if mode == "psd" else None,
        drafter_idle_whole=drafter_idle_whole,
        lane_idle_whole=(verifier_idle_whole if verify_ms == longer_ms else drafter_idle_whole) if two else None,
        acceptance=counts.acceptance,
        acceptance_at=where_all_before_were(counts.acceptance_at),
        verified_drafts=verified_drafts(verifier) or None,
        in_two=ways[Way.TWO],
        in_one=ways[Way.ONE],
        ahead=ways[Way.AHEAD],
        imbalance=imbalance(turns) if mode == "psd" else None,
        work_imbalance=work_imbalance(turns) if mode == "psd" else None,
        skewed_share=skewed_share(turns) if mode == "psd" else None,
        steady_steps=len(calls),
        tail_s=tail_s([request.answered_s for request in requests], in_flight),
    )


def steady_of_one(verifier: Records, in_flight: int) -> Calls:
    """The steady calls of an engine with one batch: it has all rows, and so has the next call; none reads its prompt.

    Args:
        verifier: the records of the rank. In an engine that may have two batches the next call's number is two more.
        in_flight: rows in the engine at once.
    """
    calls = verifier["call"]
    full = (verifier["prefill"] == 0) & (verifier["requests"] >= in_flight)
    so_is_the_next = np.append(full[1:] & (np.diff(calls) <= 2), False)
    chosen: Calls = calls[full & so_is_the_next[: len(full)]]
    return chosen


def steady_of_two(verifier: Records, drafter: Records, in_flight: int) -> Calls:
    """The steady calls of an engine with two batches: as `measures.steady`, and both together have all rows.

    Both together, not each the half: where the scheduler lets the batches grow apart, that is part of what it does.
    A row is verified once in two calls that follow each other, so those two have every row exactly once. As with one
    batch, the same rows must be verified next time, too: a call in which a row ends gives more tokens than others.

    Args:
        verifier: the records of a verifier.
        drafter: those of the drafter.
        in_flight: rows in the engine at once.
    """
    calls = measures.steady(verifier, drafter)
    known, requests = verifier["call"], verifier["requests"]
    at = np.searchsorted(known, calls)
    again = np.minimum(np.searchsorted(known, calls + 2), len(known) - 1)  # -1 is of no use: then no call is steady
    same = (known[again] == calls + 2) & (verifier["prefill"][again] == 0) & (requests[again] == requests[at])
    chosen: Calls = calls[same & (requests[at] + requests[at + 1] >= in_flight)]
    return chosen


def where_all_before_were(acceptance_at: Sequence[float]) -> tuple[float, ...]:
    """From the share accepted at each position to the share of those whose predecessors all were.

    Exact where all rows have equally many drafts, and at most 1; to the last position that any got to.

    Args:
        acceptance_at: as in `measures.Summary`.
    """
    before = (1.0, *acceptance_at)
    return tuple(min(1.0, share / earlier) for share, earlier in zip(acceptance_at, before, strict=False) if earlier)


def verified_drafts(verifier: Records) -> float | None:
    """How many drafts a request which reads no prompt has verified in a call, in the mean; None without such."""
    rows = int((verifier["requests"] - verifier["prefill"]).sum())
    return int(verifier["drafted"].sum()) / rows if rows else None


def way_share(verifier: Records, way: Way) -> float | None:
    """The share of calls of that way; None where there are none."""
    return float((verifier["way"] == way).mean()) if (verifier["way"] == way).any() else None


def imbalance(verifier: Records) -> float | None:
    """The mean of |a - b| / (a + b) for the requests a, b of calls that follow each other, from 0 to 1.

    An empty batch leaves no record but has its number: beside one that is not empty, it counts as 1. None where no two
    calls follow each other.
    """
    return _mean_difference(*_pairs(verifier, verifier["requests"]))


def work_imbalance(verifier: Records) -> float | None:
    """The same for what the requests verify: each one token that was sampled before, and its drafts.

    Requests that read their prompt count as nothing. None where no two calls follow each other with such work in them.
    """
    return _mean_difference(*_pairs(verifier, _work(verifier)))


def skewed_share(verifier: Records) -> float | None:
    """How many of the pairs that `work_imbalance` is about are skewed, as a share.

    Their work differs by more than a request with all its drafts has, and by more than a tenth of the larger. None as
    with `work_imbalance`.
    """
    a, b = _pairs(verifier, _work(verifier))
    of_one = 1 + np.count_nonzero(verifier["drafted_at"].sum(axis=0))
    skewed = np.abs(a - b) > np.maximum(of_one, _SKEWED * np.maximum(a, b))
    return float(skewed.mean()) if skewed.size else None


def tail_s(answered_s: Sequence[float], in_flight: int) -> float | None:
    """How long the end takes, in seconds: from the first place that stays empty, for no row waits, to the last answer.

    None with fewer rows than places.

    Args:
        answered_s: when each row was answered, in any order.
        in_flight: places.
    """
    if len(answered_s) < in_flight:
        return None
    ended = sorted(answered_s)
    return ended[-1] - ended[len(ended) - in_flight]


def _work(verifier: Records) -> NDArray[np.int32]:
    """[calls] tokens that are verified."""
    work: NDArray[np.int32] = verifier["requests"] - verifier["prefill"] + verifier["drafted"]
    return work


def _pairs(verifier: Records, amounts: NDArray[np.int32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The amounts of calls that follow each other, [pairs] of the first and of the second, where either has any.

    Args:
        verifier: the records.
        amounts: [calls] of each record; a number without a record has none.
    """
    calls = verifier["call"]
    # An engine that has nothing to do at all makes no calls, so numbers are dense enough for an array.
    dense = np.zeros(int(calls[-1] - calls[0]) + 1 if len(calls) else 0)
    dense[calls - calls[:1]] = amounts
    a, b = dense[:-1], dense[1:]
    busy = a + b > 0
    return a[busy], b[busy]


def _mean_difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """The mean of |a - b| / (a + b); None where there are no pairs."""
    return float((np.abs(a - b) / (a + b)).mean()) if a.size else None


def _idle(windows: Spans, busy: Spans) -> float | None:
    """The share of the windows in which nothing is done; None where there are no windows."""
    return 1 - overlap_ns(windows, busy) / total_ns(windows) if len(windows) else None
