"""What stage records say, against examples worked by hand and brute force."""

import random

import numpy as np
import pytest

from worker.minedraft.measures import (
    HiddenTime,
    Spans,
    draft_spans,
    hidden_share,
    overlap_ns,
    stage_spans,
    steady,
    step_spans,
    summary,
    verify_spans,
)
from worker.minedraft.stages import RECORD, Records, Stage

MS = 1_000_000
NONE = np.empty(0, RECORD)


def timeline(first: Stage, last: Stage, *rows: tuple[int, int, int]) -> Records:
    """Records of (call, begin of `first`, end of `last`), in ms."""
    records = np.zeros(len(rows), RECORD)
    for record, (call, begin, end) in zip(records, rows, strict=True):
        record["call"], record["begin"][first], record["end"][last] = call, begin * MS, end * MS
    return records


def verified(*rows: tuple[int, int, int]) -> Records:
    return timeline(Stage.PREPARE, Stage.SAMPLE, *rows)


def drafted(*rows: tuple[int, int, int]) -> Records:
    return timeline(Stage.DRAFT, Stage.DRAFT, *rows)


def spans(*pairs: tuple[int, int]) -> Spans:
    return np.array(pairs, np.int64).reshape(-1, 2)


def random_spans(rng: random.Random, count: int, most: int) -> list[tuple[int, int]]:
    """Sorted disjoint intervals, some of which touch, within 1 to `most`."""
    ends = sorted(rng.sample(range(1, most), 2 * count))
    pairs = list(zip(ends[::2], ends[1::2], strict=True))
    return [
        (begin, pairs[i + 1][0] if i + 1 < count and rng.random() < 0.3 else end)
        for i, (begin, end) in enumerate(pairs)
    ]


# Two batches, V = 10 and t = 6, steps of 11: each draft lies within the next verify pass.
FAST_DRAFTER = (
    verified(*((call, 11 * call, 11 * call + 10) for call in range(1, 7))),
    drafted(*((call, 11 * call + 12, 11 * call + 18) for call in range(1, 7))),
)
# V = 6 and t = 10: each verify pass but for its first ms lies within a draft.
SLOW_DRAFTER = (
    verified(*((call, 11 * call, 11 * call + 6) for call in range(1, 7))),
    drafted(*((call - 1, 11 * call + 1, 11 * call + 11) for call in range(1, 7))),
)
# Verify, then draft, then verify.
IN_TURNS = (
    verified(*((call, 20 * call, 20 * call + 10) for call in range(1, 7))),
    drafted(*((call, 20 * call + 11, 20 * call + 19) for call in range(1, 7))),
)


def test_v_runs_from_preparing_to_sampling_and_t_is_the_draft() -> None:
    records = np.zeros(2, RECORD)
    for stage in Stage:
        records["begin"][0, stage], records["end"][0, stage] = 10 * stage + 1, 10 * stage + 5
    assert verify_spans(records).tolist() == [[11, 35]]
    assert draft_spans(records).tolist() == [[41, 45]]
    assert stage_spans(records, Stage.SEND).tolist() == [[51, 55]]


def test_a_stage_that_did_not_end_is_no_interval() -> None:
    records = drafted((1, 5, 0), (2, 0, 7))
    assert draft_spans(records).shape == (0, 2)


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        (spans(), spans((1, 5)), 0),
        (spans((1, 5)), spans(), 0),
        (spans((1, 5)), spans((5, 9)), 0),
        (spans((1, 5)), spans((2, 3)), 1),
        (spans((1, 5), (5, 9)), spans((4, 6)), 2),
        (spans((0, 10)), spans((1, 2), (3, 5), (9, 20)), 4),
    ],
)
def test_overlap(a: Spans, b: Spans, common: int) -> None:
    assert overlap_ns(a, b) == overlap_ns(b, a) == common


def test_overlap_is_what_brute_force_counts() -> None:
    rng = random.Random(20260)
    for _ in range(200):
        a, b = (random_spans(rng, rng.randrange(12), 60) for _ in range(2))
        inside = [{ns for begin, end in pairs for ns in range(begin, end)} for pairs in (a, b)]
        assert overlap_ns(spans(*a), spans(*b)) == len(inside[0] & inside[1]), (a, b)


def test_steady_calls_have_neighbours_that_decode_and_a_draft() -> None:
    verifier = verified(*((call, 10 * call, 10 * call + 9) for call in (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13)))
    verifier["prefill"][verifier["call"] == 12] = 1
    drafter = drafted(*((call, 10 * call + 10, 10 * call + 12) for call in range(1, 14) if call != 9))
    assert steady(verifier, drafter).tolist() == [2, 3, 7, 8, 10]
    assert step_spans(verifier, steady(verifier, drafter)).tolist()[2] == [70 * MS, 80 * MS]


def test_a_pass_that_did_not_end_makes_nothing_steady() -> None:
    verifier = verified((1, 10, 19), (2, 20, 29), (3, 30, 0))
    assert steady(verifier, drafted((2, 30, 35))).size == 0


@pytest.mark.parametrize(
    ("ranks", "share"), [(FAST_DRAFTER, 1.0), (SLOW_DRAFTER, 5 / 6), (IN_TURNS, 0.0), ((NONE, NONE), None)]
)
def test_hidden_share(ranks: tuple[Records, Records], share: float | None) -> None:
    verifier, drafter = ranks
    assert hidden_share(drafter, verifier) == (None if share is None else pytest.approx(share))


def test_hidden_share_is_of_the_steady_part() -> None:
    """Before and after it, where a batch reads prompts or is empty, drafting may well stand alone."""
    verifier, drafter = FAST_DRAFTER
    alone = drafted((7, 200, 300))
    assert hidden_share(np.concatenate([drafter, alone]), verifier) == 1.0


def test_summary_of_a_run_worked_by_hand() -> None:
    verifier, drafter = (records.copy() for records in FAST_DRAFTER)
    verifier["requests"] = [8, 8, 8, 8, 8, 2]
    verifier["begin"][:, Stage.RECV] = verifier["begin"][:, Stage.PREPARE] - MS // 2
    verifier["end"][:, Stage.RECV] = verifier["begin"][:, Stage.PREPARE]
    drafter["begin"][:, Stage.RECV] = drafter["begin"][:, Stage.DRAFT] - 5 * MS
    drafter["end"][:, Stage.RECV] = drafter["begin"][:, Stage.DRAFT]
    verifier["drafted_at"][:, :2] = 8, 4
    verifier["accepted"][:, :2] = 6, 1
    found = summary(verifier, drafter)
    assert found.steady_calls == 4
    assert (found.verify_ms, found.draft_ms, found.step_ms) == (10, 6, 11)
    assert (found.verifier_wait_ms, found.drafter_wait_ms) == (0.5, 5)
    assert found.hidden_share == 1.0
    assert found.acceptance == pytest.approx(7 / 12)
    assert found.acceptance_at == (0.75, 0.25)
    assert found.mean_requests == 7


def test_summary_of_nothing() -> None:
    found = summary(NONE, NONE)
    assert (found.steady_calls, found.acceptance_at) == (0, ())
    assert found.verify_ms is found.draft_ms is found.step_ms is found.hidden_share is None
    assert found.verifier_wait_ms is found.drafter_wait_ms is found.acceptance is found.mean_requests is None


def test_hidden_time_does_not_depend_on_how_the_records_come_in() -> None:
    rng = random.Random(7)
    for _ in range(200):
        passes = verified(*((i, *pair) for i, pair in enumerate(random_spans(rng, rng.randrange(20), 100))))
        drafts = drafted(*((i, *pair) for i, pair in enumerate(random_spans(rng, rng.randrange(20), 100))))
        hidden, total, p, d = HiddenTime(), 0, 0, 0
        while p < len(passes) or d < len(drafts):
            more_p, more_d = rng.choice([0, 0, 1, 2, 20]), rng.choice([0, 0, 1, 2, 20])
            total += hidden.add(passes[p : p + more_p], drafts[d : d + more_d])
            p, d = p + more_p, d + more_d
        assert total + hidden.rest() == overlap_ns(verify_spans(passes), draft_spans(drafts))


def test_a_draft_is_held_back_until_a_later_pass_is_known() -> None:
    hidden = HiddenTime()
    assert hidden.add(verified((1, 10, 20)), drafted((0, 15, 35))) == 0
    assert hidden.add(verified((2, 22, 32)), NONE) == 0
    assert hidden.add(verified((3, 34, 44)), NONE) == (5 + 10 + 1) * MS
    assert hidden.add(NONE, NONE) == hidden.rest() == 0


def test_passes_are_kept_only_for_drafts_that_may_still_come() -> None:
    hidden = HiddenTime()
    for call in range(1, 40):
        hidden.add(verified((call, 10 * call, 10 * call + 8)), drafted((call - 1, 10 * call + 1, 10 * call + 9)))
        assert len(hidden._passes) <= 2
    for call in range(40, 40 + 2 * HiddenTime.MOST_PASSES, 512):
        hidden.add(verified(*((n, 10 * n, 10 * n + 8) for n in range(call, call + 512))), NONE)
    assert len(hidden._passes) == HiddenTime.MOST_PASSES
