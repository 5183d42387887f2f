"""How many drafts of a row may be verified."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.strategies.lengths import make
from worker.strategies.lengths.adaptive import Adaptive
from worker.strategies.seam import Lengths, Strategy

PRICES = st.floats(0, 2)


def shown(lengths: Lengths, request: str, share: float, drafts: int = 4, times: int = 100) -> None:
    """A row each of whose drafts is accepted with this chance."""
    random = np.random.default_rng(0)
    for _ in range(times):
        right = random.uniform(size=drafts) < share
        lengths.verified(request, drafts, int(np.cumprod(right).sum()))


def test_names() -> None:
    with pytest.raises(ValueError, match="no draft length is called some"):
        make(Strategy(length="some"))


def test_fixed_is_all_there_are() -> None:
    fixed = make(Strategy(length="fixed"))
    shown(fixed, "a", 0.0)
    assert [fixed.most("a", drafts, 5.0) for drafts in range(4)] == [0, 1, 2, 3]
    fixed.ended("a")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.95])
def test_a_rows_acceptance_is_learnt(share: float) -> None:
    adaptive = Adaptive()
    shown(adaptive, "a", share, times=1000)
    assert adaptive.chance("a") == pytest.approx(share, abs=0.15)


@pytest.mark.parametrize(("price", "hard", "easy"), [(0.0, 8, 8), (0.1, 2, 8), (0.5, 0, 8), (1.5, 0, 0)])
def test_a_row_gets_the_drafts_that_are_worth_their_price(price: float, hard: int, easy: int) -> None:
    adaptive = make(Strategy(length="adaptive"))
    shown(adaptive, "hard", 0.3)
    shown(adaptive, "easy", 0.98)
    assert adaptive.most("easy", 8, price) == easy
    assert adaptive.most("hard", 8, price) == pytest.approx(hard, abs=1)


def test_a_new_row_is_like_the_others_and_soon_itself() -> None:
    adaptive = Adaptive()
    assert adaptive.chance("new") == pytest.approx(0.7)
    for other in "abcdef":
        shown(adaptive, other, 0.95)
    assert adaptive.chance("new") == pytest.approx(0.95, abs=0.02)
    shown(adaptive, "new", 0.0, times=15)
    assert adaptive.chance("new") < 0.35
    adaptive.ended("new")
    assert adaptive.chance("new") == pytest.approx(0.95, abs=0.02)
    adaptive.ended("never there")


def test_a_row_that_gets_easier_is_found_out() -> None:
    """Without a draft now and then nothing would ever be known of it again."""
    adaptive = make(Strategy(length="adaptive"))
    shown(adaptive, "a", 0.0)
    lengths = [adaptive.most("a", 4, 0.5) for _ in range(16)]
    assert lengths == [0] * 7 + [1] + [0] * 7 + [1]
    for _ in range(300):
        most = adaptive.most("a", 4, 0.5)
        adaptive.verified("a", most, most)
    assert adaptive.most("a", 4, 0.5) == 4


def test_a_row_without_drafts_is_not_tried() -> None:
    adaptive = make(Strategy(length="adaptive"))
    assert [adaptive.most("a", 0, 2.0) for _ in range(20)] == [0] * 20


def test_drafts_after_a_rejected_one_say_nothing() -> None:
    long, short = Adaptive(), Adaptive()
    for _ in range(20):
        long.verified("a", 8, 1)
        short.verified("a", 2, 1)
    assert long.chance("a") == short.chance("a")


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8), st.integers(0, 8))), st.integers(1, 8), PRICES, PRICES
)
def test_a_higher_price_never_gets_more(
    past: list[tuple[str, int, int]], drafts: int, price: float, other: float
) -> None:
    def told() -> Adaptive:
        adaptive = Adaptive()
        for row, verified, accepted in past:
            adaptive.verified(row, verified, min(verified, accepted))
        return adaptive

    low, high = sorted((price, other))
    adaptive = told()
    assert 0 < adaptive.chance("a") <= 1
    assert 0 <= told().most("a", drafts, high) <= told().most("a", drafts, low) <= drafts
    most = told().most("a", drafts, price)
    if most:
        assert adaptive.chance("a") ** most >= price - 1e-9
    if most < drafts and price > 0:
        assert adaptive.chance("a") ** (most + 1) < price + 1e-9
