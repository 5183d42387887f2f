"""What is asked of a run in which two batches should overlap."""

import numpy as np
import pytest
from gpu.overlap import LEAST, WARM, Overlap, judge, overlap_of
from gpu.parts import Checks, Verdict
from timelines import one_batch, two_batches

from worker.minedraft.stages import DRAFTER, RECORD, Records, Stage, verifier_name

FIRST = verifier_name(0)


def run(**speed: float) -> Overlap:
    return of(two_batches(200, **speed))


def of(records: dict[str, Records]) -> Overlap:
    return overlap_of(records[FIRST], records[DRAFTER])


def judged(overlap: Overlap, *, alone: bool = True) -> dict[str, Verdict]:
    checks = Checks()
    judge(checks, overlap, alone=alone)
    return {check.what: check.verdict for check in checks.all}


def test_a_run_that_overlaps_passes() -> None:
    overlap = run(verify=25, draft=22)
    assert overlap.measured
    assert overlap.gap_ms == pytest.approx(0.2, abs=0.01)
    assert 1 < overlap.step_over_longer < 1.2
    assert judged(overlap) == {
        "step over the longer of V and t": Verdict.REPORT,
        "hidden share": Verdict.PASS,
        "gap between passes": Verdict.PASS,
    }


def test_the_first_calls_are_not_counted() -> None:
    records = two_batches(200)
    assert 170 < of(records).found.steady_calls <= 200 - WARM
    for of_rank in records.values():
        of_rank["end"][:WARM, Stage.SAMPLE] += 10**12
    assert of(records).gap_ms == pytest.approx(0.2, abs=0.01)


def test_drafting_beside_no_pass_fails() -> None:
    """One batch that is verified, then drafted for, then verified."""
    verifier = one_batch(200, verify=25, draft=22)[FIRST]
    verifier["begin"][:, Stage.RECV] = verifier["begin"][:, Stage.PREPARE]
    assert judged(overlap_of(verifier, verifier))["hidden share"] is Verdict.FAIL


def test_a_device_that_waits_for_the_engine_fails() -> None:
    records = two_batches(200)
    records[FIRST]["begin"][:, Stage.RECV] += 2_000_000
    assert judged(of(records))["gap between passes"] is Verdict.FAIL


def test_where_drafting_takes_longer_the_hidden_share_is_told() -> None:
    verdicts = judged(run(verify=10, draft=22))
    assert verdicts["hidden share, where drafting takes longer"] is Verdict.REPORT
    assert verdicts["gap between passes"] is Verdict.PASS


def test_on_one_gpu_nothing_is_judged() -> None:
    assert set(judged(run(), alone=False).values()) == {Verdict.REPORT}


def test_a_run_that_says_nothing_fails() -> None:
    short, none = two_batches(WARM + LEAST // 2), np.empty(0, RECORD)
    assert judged(of(short)) == {"overlap is measured": Verdict.FAIL}
    assert judged(overlap_of(one_batch(200)[FIRST], none)) == {"overlap is measured": Verdict.FAIL}
    assert judged(overlap_of(none, none)) == {"overlap is measured": Verdict.FAIL}
    assert judged(overlap_of(one_batch(200)[FIRST], two_batches(200)[DRAFTER][:0])) == {
        "overlap is measured": Verdict.FAIL
    }
