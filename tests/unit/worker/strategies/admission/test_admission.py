"""Which drafts are verified, by each rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from worker.strategies.admission import make
from worker.strategies.costs import Costs
from worker.strategies.seam import Admission, Chances, Drafted, Strategy, Way

CHANCES = st.tuples(st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: arrays.arrays(np.float64, shape, elements=st.floats(0.01, 1))
)
SURE, MIDDLING, UNSURE = [0.95, 0.95, 0.95, 0.95], [0.86, 0.86, 0.86, 0.86], [0.3, 0.3, 0.3, 0.3]


def rule(admission: str, drafts: int = 4, extra: int = 0, costs: Costs | None = None) -> Admission:
    return make(Strategy(admission=admission, extra=extra), drafts, costs or Costs())


def admitted(of: Admission, *chances: list[float], way: Way = Way.TWO) -> list[int]:
    counts: list[int] = of.admit(Drafted(np.array(chances), way)).tolist()
    return counts


def measured(token_ms: float, floor_ms: float = 10.0, draft_ms: float = 1.0) -> Costs:
    """V with a floor, then by the token, and t."""
    costs = Costs()
    for rows in range(1, 9):
        for drafts in range(5):
            tokens = rows * (1 + drafts)
            costs.verified(rows, tokens, max(floor_ms, token_ms * tokens))
            costs.drafted(rows, tokens, 4, draft_ms)
    return costs


def test_names() -> None:
    assert not rule("all").needs_chances
    assert rule("tetris", extra=1).needs_chances
    assert rule("confidence").needs_chances
    with pytest.raises(ValueError, match="no admission is called some"):
        rule("some")
    with pytest.raises(ValueError, match="one a row at least"):
        rule("tetris", drafts=2, extra=2)


def test_all_are_verified() -> None:
    assert admitted(rule("all"), UNSURE, [0.0] * 4) == [4, 4]
    rule("all").verified(np.zeros((1, 4)), np.array([4]), np.array([0]))


@pytest.mark.parametrize(
    ("extra", "chances", "counts"),
    [
        (2, [SURE, UNSURE], [4, 0]),  # 4 of 8: the sure row's last survives with 0.81
        (2, [SURE, MIDDLING], [3, 1]),
        (2, [MIDDLING, SURE], [1, 3]),
        (2, [MIDDLING, MIDDLING, MIDDLING], [2, 2, 2]),  # equals: the first places first
        (3, [MIDDLING, MIDDLING, MIDDLING], [1, 1, 1]),
        (3, [UNSURE, [0.9, 0.1, 0.9, 0.9], UNSURE], [1, 1, 1]),  # nothing survives what is before it
        (1, [SURE, [0.0] * 4, UNSURE], [4, 0, 2]),  # a row without drafts gives no capacity
        (2, [[0.0] * 4, [0.0] * 4], [0, 0]),
        (2, [[0.5, 0.0, 0.0, 0.0], [0.1, 0.1, 0.0, 0.0]], [1, 2]),  # more capacity than drafts
    ],
)
def test_tetris_verifies_the_likeliest(extra: int, chances: list[list[float]], counts: list[int]) -> None:
    assert admitted(rule("tetris", extra=extra), *chances) == counts


def test_of_no_rows_none() -> None:
    nothing: Chances = np.zeros((0, 4))
    for admission in (rule("all"), rule("tetris", extra=1), rule("confidence", costs=measured(1.0))):
        assert admission.admit(Drafted(nothing, Way.TWO)).tolist() == []


@settings(deadline=None)
@given(CHANCES, st.integers(1, 3))
def test_tetris_verifies_as_many_as_there_is_room_for_and_none_less_likely(chances: Chances, verified: int) -> None:
    rows, drafts = chances.shape
    counts = rule("tetris", drafts=verified + 1, extra=1).admit(Drafted(chances, Way.TWO))
    assert counts.sum() == min(rows * verified, rows * drafts)
    survival = np.cumprod(chances, axis=1)
    taken = np.arange(drafts) < counts[:, None]
    if taken.any() and not taken.all():
        # What is believed of a chance before anything was learnt is the chance, but for the width of a bin.
        assert survival[taken].min() >= survival[~taken].max() - 0.05


def test_tetris_learns_whom_to_believe() -> None:
    """Drafts at 0.9 are never right, and those at 0.6 always."""
    tetris = rule("tetris", extra=3)
    for _ in range(50):
        tetris.verified(np.array([[0.9] * 4, [0.6] * 4] * 8), np.full(16, 4), np.array([0, 4] * 8))
    assert admitted(tetris, [0.9] * 4, [0.6] * 4) == [1, 1], "more chance is never believed to be less"
    assert admitted(tetris, [0.9] * 4, [0.1] * 4) == [2, 0]


def test_confidence_verifies_all_that_cost_nothing() -> None:
    flat = rule("confidence", costs=measured(0.0))
    assert admitted(flat, UNSURE, SURE) == [4, 4]
    assert admitted(flat, UNSURE, [0.5, 0.5, 0.0, 0.0]) == [4, 2]


def test_confidence_verifies_all_while_nothing_is_known() -> None:
    assert admitted(rule("confidence"), UNSURE, SURE) == [4, 4]


def test_confidence_verifies_what_is_worth_its_time() -> None:
    """V = tokens: a draft is worth it while it survives with more than what a token is got for, 1 at first."""
    assert admitted(rule("confidence", costs=measured(1.0, floor_ms=0.1)), SURE, UNSURE) == [0, 0]
    # The floor is for 4 tokens: two drafts for nothing, the likeliest; the next ones cost 2.5 ms, 1 token at 4 / 10 ms.
    assert admitted(rule("confidence", costs=measured(2.5)), SURE, UNSURE) == [2, 0]
    # The floor is for 20 tokens: all are for nothing.
    assert admitted(rule("confidence", costs=measured(0.5)), SURE, UNSURE) == [4, 4]


def test_in_one_batch_the_time_to_draft_makes_more_drafts_worth_it() -> None:
    costs = measured(2.5, draft_ms=12.0)
    costs_of = [admitted(rule("confidence", costs=costs), SURE, MIDDLING, UNSURE, way=way) for way in Way]
    two, one, ahead = (sum(counts) for counts in costs_of)
    assert two == ahead
    assert one > two


def test_while_v_is_less_than_t_two_batches_verify_for_nothing() -> None:
    assert admitted(rule("confidence", costs=measured(2.5, draft_ms=30.0)), UNSURE, UNSURE) == [4, 4]
    assert admitted(rule("confidence", costs=measured(2.5, draft_ms=1.0)), UNSURE, UNSURE) == [1, 1]


def test_a_step_of_v_just_ahead_is_shared_by_all_that_pass_it() -> None:
    """A device that takes 8 tokens at a time: of the next 8 the first alone is not worth its time."""
    costs = Costs()
    for tokens in range(1, 41):
        for _ in range(9):
            costs.verified(8, tokens, 10.0 + 3 * ((tokens - 1) // 8))
    assert admitted(rule("confidence", costs=costs), *[MIDDLING[:3]] * 8) == [3] * 8


def test_what_nothing_hides_makes_drafts_worth_more() -> None:
    costs = measured(2.5)
    before = sum(admitted(rule("confidence", costs=costs), SURE, MIDDLING))
    costs.waited(Way.TWO, 40.0, drafting=True)
    assert sum(admitted(rule("confidence", costs=costs), SURE, MIDDLING)) > before
