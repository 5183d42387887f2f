"""What a turn says, against records whose answers are worked out by hand."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.lab.numbers import (
    Request,
    imbalance,
    skewed_share,
    steady_of_one,
    steady_of_two,
    tail_s,
    turn,
    verified_drafts,
    where_all_before_were,
    work_imbalance,
)
from worker.minedraft import measures
from worker.minedraft.stages import RECORD, Records, Stage
from worker.strategies.seam import Way

MS = 1_000_000


def record(
    call: int,
    *,
    verify: tuple[float, float] | None = None,
    draft: tuple[float, float] | None = None,
    requests: int = 0,
    prefill: int = 0,
    drafted: int = 0,
    accepted: tuple[int, ...] = (),
) -> Records:
    """One record; times in ms, the pass cut into preparing, forward pass and sampling."""
    made = np.zeros(1, RECORD)
    made["call"], made["requests"], made["prefill"] = call, requests, prefill
    if verify:
        begin, end = (round(ms * MS) for ms in verify)
        third = (end - begin) // 3
        cuts = [begin, begin + third, begin + 2 * third, end]
        for stage, first, last in zip((Stage.PREPARE, Stage.FORWARD, Stage.SAMPLE), cuts, cuts[1:], strict=False):
            made["begin"][0, stage], made["end"][0, stage] = first, last
    if draft:
        made["begin"][0, Stage.DRAFT], made["end"][0, Stage.DRAFT] = (round(ms * MS) for ms in draft)
    made["drafted_at"][0, : len(accepted)], made["drafted"] = drafted, drafted * len(accepted)
    made["accepted"][0, : len(accepted)] = accepted
    return made


def records(made: Iterable[Records]) -> Records:
    return np.concatenate(list(made))


RECORDLESS = np.empty(0, RECORD)
#: Given at 0 and 10 ms, answered at 100 and 200 ms, 20 tokens in all.
ROWS = [Request(0.0, 0.1, 5), Request(0.01, 0.2, 15)]


def test_plain_decoding() -> None:
    """Two rows; V = 10 ms, steps of 12 ms; the first call reads prompts, the last one has a row less."""
    verifier = records(
        record(call, verify=(12 * call, 12 * call + 10), requests=1 if call == 6 else 2, prefill=2 if call == 1 else 0)
        for call in range(1, 7)
    )
    found = turn("ar", {"verifier_0": verifier}, ROWS, 2, ms_per_token=6.5)
    assert found.steady_steps == 3  # from calls 2, 3 and 4
    assert (found.verify_ms, found.draft_ms, found.step_ms) == (10, None, 12)
    assert found.steady_tokens_per_s == pytest.approx(2 / 0.012)
    assert found.step_over_longer == pytest.approx(1.2)
    assert found.verifier_idle == pytest.approx(2 / 12)
    assert found.verifier_idle_whole == pytest.approx(1 - 60 / 200)
    assert found.hidden_share is found.drafter_idle is found.drafter_idle_whole is None
    assert found.acceptance is found.imbalance is None
    assert found.work_imbalance is found.skewed_share is found.lane_idle_whole is None
    assert found.tail_s == pytest.approx(0.1)
    assert found.acceptance_at == ()
    assert (found.seconds, found.tokens, found.tokens_per_s) == (0.2, 20, pytest.approx(100))
    assert found.ms_per_token == 6.5


def test_one_after_the_other() -> None:
    """Two rows; V = 10 ms, then t = 8 ms, then 2 ms; two drafts for each row, of which 2 and 1 are accepted."""
    verifier = records(
        record(
            call,
            verify=(20 * call, 20 * call + 10),
            draft=(20 * call + 10, 20 * call + 18),
            requests=2,
            drafted=2,
            accepted=(2, 1),
        )
        for call in range(1, 6)
    )
    found = turn("sd", {"verifier_0": verifier}, ROWS, 2)
    assert found.steady_steps == 4
    assert (found.verify_ms, found.draft_ms, found.step_ms) == (10, 8, 20)
    assert found.steady_tokens_per_s == pytest.approx((2 + 3) / 0.020)
    assert found.hidden_share == 0
    assert found.step_over_longer == 2
    assert found.verifier_idle == pytest.approx(0.5)
    assert found.drafter_idle is found.drafter_idle_whole is None
    assert (found.acceptance, found.acceptance_at) == (0.75, (1.0, 0.5))


def two_batches() -> dict[str, Records]:
    """Four rows in two batches; V = 10 ms, t = 6 ms, steps of 11 ms; a draft begins 12 ms after its own pass.

    Calls 1 and 2 read prompts; row 4 ends with call 8, and so call 10, the last, has one row.
    """
    calls = range(1, 11)
    verifier = records(
        record(
            call,
            verify=(11 * call, 11 * call + 10),
            requests=1 if call == 10 else 2,
            prefill=2 if call < 3 else 0,
            drafted=0 if call < 3 else 2,
            accepted=(0, 0) if call < 3 else (2, 1),
        )
        for call in calls
    )
    drafter = records(record(call, draft=(11 * call + 12, 11 * call + 18), requests=2) for call in calls)
    return {"verifier_0": verifier, "drafter": drafter}


def test_two_batches() -> None:
    found = turn("psd", two_batches(), ROWS, 4)
    # Calls 4 to 7: 3 has a neighbour that reads prompts, 9 one with a row less, and after 8 a row is gone.
    assert found.steady_steps == 4
    assert (found.verify_ms, found.draft_ms, found.step_ms) == (10, 6, 11)
    assert found.steady_tokens_per_s == pytest.approx((2 + 3) / 0.011)
    assert found.hidden_share == 1
    assert found.step_over_longer == pytest.approx(1.1)
    assert (found.verifier_idle, found.drafter_idle) == (pytest.approx(1 / 11), pytest.approx(5 / 11))
    assert found.verifier_idle_whole == pytest.approx(1 - 100 / 200)
    assert found.drafter_idle_whole == pytest.approx(1 - 60 / 200)
    assert found.lane_idle_whole == found.verifier_idle_whole  # V is longer
    assert found.acceptance == 0.75
    assert found.imbalance == pytest.approx((1 / 3) / 9)
    # Nothing verified in 1 and 2, then 6 tokens a call: two requests with two drafts each; 5 in the last.
    assert found.work_imbalance == pytest.approx((1 + 6 * 0 + 1 / 11) / 8)
    assert found.skewed_share == pytest.approx(1 / 8)
    assert found.tail_s is None  # two rows, four places


def alone(way: Way, calls: int = 6) -> dict[str, Records]:
    """Four rows in one batch, every second number; V = 10 ms, t = 6 ms beside it, steps of 11 ms."""
    numbers = range(1, 2 * calls, 2)
    verifier = records(
        record(call, verify=(11 * call, 11 * call + 10), requests=4, drafted=4, accepted=(2, 1)) for call in numbers
    )
    for at, call in enumerate(numbers):
        verifier["begin"][at] -= 11 * at * MS * (verifier["begin"][at] > 0)
        verifier["end"][at] -= 11 * at * MS * (verifier["end"][at] > 0)
        assert verifier["begin"][at, Stage.PREPARE] == 11 * (call - at) * MS
    drafter = records(
        record(call, draft=(11 * (call - at) + 1, 11 * (call - at) + 7), requests=4) for at, call in enumerate(numbers)
    )
    verifier["way"] = drafter["way"] = way
    return {"verifier_0": verifier, "drafter": drafter}


def test_one_batch_with_a_drafter_beside_it() -> None:
    found = turn("psd", alone(Way.AHEAD), ROWS, 4)
    assert found.steady_steps == 5  # the last one has no next
    assert (found.verify_ms, found.draft_ms, found.step_ms) == (10, 6, 11)
    assert found.steady_tokens_per_s == pytest.approx((4 + 3) / 0.011)
    assert found.hidden_share == 1
    assert found.verified_drafts == 2
    assert (found.in_two, found.in_one, found.ahead) == (None, None, 1)
    assert found.imbalance is found.work_imbalance is found.skewed_share is None  # there is nothing to balance


def test_the_ways_of_a_run_are_shares_of_its_calls_and_only_two_batches_are_balanced() -> None:
    made, after = two_batches(), alone(Way.ONE)
    for of_rank in after.values():
        of_rank["call"] += 10
    both = {rank: np.concatenate([made[rank], after[rank]]) for rank in made}
    found = turn("psd", both, ROWS, 4)
    assert (found.in_two, found.in_one, found.ahead) == (10 / 16, 6 / 16, None)
    assert found.steady_steps == 4 + 5
    assert found.imbalance == pytest.approx((1 / 3) / 9)
    plain = turn("sd", {"verifier_0": after["verifier_0"]}, ROWS, 4)
    assert plain.in_two is plain.in_one is plain.ahead is None


def test_drafts_a_row_are_of_rows_that_read_nothing() -> None:
    made = work((4, 3), (4, 1))
    assert verified_drafts(made) == 2
    made["prefill"][1], made["drafted"][1] = 3, 1
    assert verified_drafts(made) == 13 / 5
    assert verified_drafts(RECORDLESS) is None


def test_a_slow_drafter_hides_the_passes() -> None:
    """V = 4 ms, t = 10 ms, steps of 11 ms; of each pass, 3 ms lie in a draft."""
    verifier = records(record(call, verify=(11 * call, 11 * call + 4), requests=2) for call in range(1, 8))
    drafter = records(record(call - 1, draft=(11 * call + 1, 11 * call + 11)) for call in range(1, 9))
    found = turn("psd", {"verifier_0": verifier, "drafter": drafter}, ROWS, 4)
    assert found.steady_steps == 4
    assert found.lane_idle_whole == found.drafter_idle_whole == pytest.approx(1 - 80 / 200)
    assert found.hidden_share == pytest.approx(3 / 4)
    assert found.step_over_longer == pytest.approx(1.1)


def test_nothing_recorded_leaves_the_whole_run() -> None:
    found = turn("run-batch", {}, ROWS, 2)
    assert (found.seconds, found.tokens, found.tokens_per_s) == (0.2, 20, pytest.approx(100))
    assert found.steady_steps == 0
    assert found.steady_tokens_per_s is found.verify_ms is found.step_over_longer is found.hidden_share is None
    assert found.verifier_idle is found.verifier_idle_whole is found.imbalance is None


def test_steps_of_one_batch_are_steady_with_all_rows_twice() -> None:
    made = records(record(call, requests=8) for call in (1, 2, 3, 5, 6, 7, 8))
    made["requests"][2] = 7  # call 3
    made["prefill"][6] = 1  # call 8
    assert steady_of_one(made, 8).tolist() == [1, 5, 6]
    made["call"] *= 2
    assert steady_of_one(made, 8).tolist() == [2, 10, 12]
    made["call"] *= 2
    assert steady_of_one(made, 8).tolist() == []


def test_two_batches_are_steady_while_they_have_all_rows_together() -> None:
    """They may differ in size; a row that is missing in either is missing, and one that ends or changes is gone."""
    sizes = {1: 4, 2: 4, 3: 5, 4: 3, 5: 5, 6: 3, 7: 4, 8: 3, 9: 4}
    verifier = records(record(call, verify=(10 * call, 10 * call + 9), requests=n) for call, n in sizes.items())
    drafter = records(record(call, draft=(10 * call + 10, 10 * call + 12)) for call in sizes)
    assert steady_of_two(verifier, drafter, 8).tolist() == [3, 4]


def steady_one_by_one(verifier: Records, drafter: Records, in_flight: int) -> list[int]:
    """As `steady_of_two`, in its words instead of arrays."""
    rows = {int(one["call"]): int(one["requests"]) for one in verifier}
    decoding = {int(one["call"]) for one in verifier if one["prefill"] == 0}
    return [
        call
        for call in measures.steady(verifier, drafter).tolist()
        if rows[call] + rows[call + 1] >= in_flight and call + 2 in decoding and rows[call + 2] == rows[call]
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 0, 1])), max_size=40))
def test_steady_calls_are_those_that_one_finds_one_by_one(batches: list[tuple[int, int]]) -> None:
    """Batches of 0 to 3 rows, of which 0 leave no record."""
    calls = [(call, rows, prefill) for call, (rows, prefill) in enumerate(batches, 1) if rows]
    verifier = records(
        (
            RECORDLESS,
            *(record(call, verify=(9 * call, 9 * call + 8), requests=n, prefill=prefill) for call, n, prefill in calls),
        )
    )
    drafter = records((RECORDLESS, *(record(call, draft=(9 * call + 9, 9 * call + 12)) for call, *_ in calls)))
    assert steady_of_two(verifier, drafter, 4).tolist() == steady_one_by_one(verifier, drafter, 4)


def test_acceptance_at_a_position_is_of_those_that_got_there() -> None:
    assert where_all_before_were((0.5, 0.8)) == (0.5, 1)  # fewer rows have the second, and are surer
    assert where_all_before_were((0.8, 0.4, 0.4, 0, 0)) == (0.8, 0.5, 1.0, 0)
    assert where_all_before_were(()) == ()


def test_imbalance_counts_an_empty_batch_as_one() -> None:
    # 4 beside 2, 2 beside none, none beside 4; nobody runs between calls 5 and 9.
    made = records(record(call, requests=n) for call, n in ((2, 4), (3, 2), (5, 4), (9, 4)))
    assert imbalance(made) == pytest.approx((1 / 3 + 1 + 1 + 1 + 1) / 5)
    assert imbalance(made[:1]) is imbalance(made[:0]) is None


def work(*amounts: tuple[int, int]) -> Records:
    """Calls of so many requests that read nothing, each with so many drafts."""
    return records(
        record(call, requests=n, drafted=n, accepted=(0,) * drafts) for call, (n, drafts) in enumerate(amounts, 1)
    )


def test_imbalance_of_work_counts_drafts_and_no_prompts() -> None:
    # 4 requests with 3 drafts each beside 4 without: 16 and 4.
    assert work_imbalance(work((4, 3), (4, 0))) == pytest.approx(12 / 20)
    assert imbalance(work((4, 3), (4, 0))) == 0
    reading = work((4, 3), (4, 3), (4, 3))
    reading["prefill"][1], reading["drafted"][1] = 3, 3  # one verifies 4 tokens, three read prompts
    assert work_imbalance(reading) == pytest.approx(12 / 20)
    assert work_imbalance(reading[:1]) is work_imbalance(reading[:0]) is None


def test_pairs_of_calls_are_skewed_by_more_than_a_request_and_more_than_a_tenth() -> None:
    # A request's work is 5. 20 beside 25 is one more; 25 beside 35 two; 35 beside 36 nothing; 100 beside 110 a tenth.
    assert skewed_share(work((4, 4), (5, 4))) == 0
    assert skewed_share(work((5, 4), (7, 4))) == 1
    assert skewed_share(work((20, 4), (22, 4))) == 0
    assert skewed_share(work((20, 4), (23, 4))) == 1
    assert skewed_share(work((4, 4), (5, 4), (7, 4), (7, 4), (5, 4))) == pytest.approx(2 / 4)
    assert skewed_share(work((4, 4))) is skewed_share(RECORDLESS) is None


def test_an_empty_batch_is_skewed() -> None:
    made = records((work((4, 4)), record(3, requests=4, drafted=4, accepted=(0,) * 4)))  # nobody in call 2
    assert work_imbalance(made) == 1
    assert skewed_share(made) == 1


def test_the_tail_begins_when_a_place_stays_empty() -> None:
    # Two places: with the fourth answer of five a place is empty, for the fifth row has the other.
    assert tail_s([1.0, 7.5, 2.0, 3.0, 4.0], 2) == 3.5
    assert tail_s([1.0, 7.5, 2.0, 3.0, 4.0], 5) == 6.5
    assert tail_s([1.0, 2.0], 3) is None
