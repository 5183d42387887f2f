"""What a turn says, against records whose answers are worked out by hand."""

from collections.abc import Iterable

import numpy as np
import pytest

from worker.lab.numbers import Request, imbalance, steady_of_one, steady_of_two, turn, where_all_before_were
from worker.minedraft.stages import RECORD, Records, Stage

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
    assert found.acceptance == 0.75
    assert found.imbalance == pytest.approx((1 / 3) / 9)


def test_a_slow_drafter_hides_the_passes() -> None:
    """V = 4 ms, t = 10 ms, steps of 11 ms; of each pass, 3 ms lie in a draft."""
    verifier = records(record(call, verify=(11 * call, 11 * call + 4), requests=2) for call in range(1, 8))
    drafter = records(record(call - 1, draft=(11 * call + 1, 11 * call + 11)) for call in range(1, 9))
    found = turn("psd", {"verifier_0": verifier, "drafter": drafter}, ROWS, 4)
    assert found.steady_steps == 4
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


def test_two_batches_are_steady_while_they_have_all_rows_together() -> None:
    """They may differ in size; a row that is missing in either is missing, and one that ends or changes is gone."""
    sizes = {1: 4, 2: 4, 3: 5, 4: 3, 5: 5, 6: 3, 7: 4, 8: 3, 9: 4}
    verifier = records(record(call, verify=(10 * call, 10 * call + 9), requests=n) for call, n in sizes.items())
    drafter = records(record(call, draft=(10 * call + 10, 10 * call + 12)) for call in sizes)
    assert steady_of_two(verifier, drafter, 8).tolist() == [3, 4]


def test_acceptance_at_a_position_is_of_those_that_got_there() -> None:
    assert where_all_before_were((0.8, 0.4, 0.4, 0, 0)) == (0.8, 0.5, 1.0, 0)
    assert where_all_before_were(()) == ()


def test_imbalance_counts_an_empty_batch_as_one() -> None:
    # 4 beside 2, 2 beside none, none beside 4; nobody runs between calls 5 and 9.
    made = records(record(call, requests=n) for call, n in ((2, 4), (3, 2), (5, 4), (9, 4)))
    assert imbalance(made) == pytest.approx((1 / 3 + 1 + 1 + 1 + 1) / 5)
    assert imbalance(made[:1]) is imbalance(made[:0]) is None
