"""Of the drafts at each position, the share that is accepted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.strategies.acceptance import Acceptance


def counts(lengths: list[int], accepted: list[int]) -> tuple[list[int], list[int]]:
    """As the stage clock counts rows: with a draft, and one accepted, at each of four positions."""
    at = range(1, 5)
    return [sum(n >= j for n in lengths) for j in at], [sum(n >= j for n in accepted) for j in at]


def test_before_anything_is_known_drafts_are_more_likely_right_than_not() -> None:
    assert Acceptance().at(0) == Acceptance().at(7) == pytest.approx(0.6)
    assert Acceptance().tokens(0) == 1
    assert Acceptance().tokens(2) == pytest.approx(1 + 0.6 + 0.36)


@pytest.mark.parametrize("shares", [[0.9, 0.8, 0.7, 0.6], [0.3, 0.3, 0.3, 0.3], [0.5, 0.7, 0.9, 0.95]])
def test_shares_are_of_drafts_whose_predecessors_were_accepted(shares: list[float]) -> None:
    random = np.random.default_rng(0)
    acceptance = Acceptance()
    for _ in range(600):
        right = random.uniform(size=(16, 4)) < shares
        acceptance.add(*counts([4] * 16, np.cumprod(right, axis=1).sum(axis=1).tolist()))
    for position, share in enumerate(shares):
        assert acceptance.at(position) == pytest.approx(share, abs=0.06)
    expected = 1 + np.cumprod(shares).sum()
    assert acceptance.tokens(4) == pytest.approx(expected, rel=0.03)


def test_rows_with_fewer_drafts_do_not_blur_it() -> None:
    random = np.random.default_rng(0)
    acceptance = Acceptance()
    for _ in range(600):
        lengths = random.integers(0, 5, 16)
        right = random.uniform(size=(16, 4)) < 0.7
        accepted = np.minimum(lengths, np.cumprod(right, axis=1).sum(axis=1))
        acceptance.add(*counts(lengths.tolist(), accepted.tolist()))
    for position in range(4):
        assert acceptance.at(position) == pytest.approx(0.7, abs=0.06)


def test_positions_that_were_not_seen_are_as_the_last_one_that_was() -> None:
    acceptance = Acceptance()
    for _ in range(100):
        acceptance.add([100, 100, 0, 0], [90, 45, 0, 0])
    assert acceptance.at(1) == pytest.approx(0.5, abs=0.01)
    assert acceptance.at(2) == acceptance.at(9) == acceptance.at(1)
    acceptance.add([100, 100, 100, 0], [90, 45, 45, 0])
    assert acceptance.at(2) > 0.9
    assert acceptance.at(1) == pytest.approx(0.5, abs=0.01)


def test_what_was_long_ago_is_forgotten_by_the_drafts_since() -> None:
    acceptance = Acceptance()
    for accepted in (100, 20):
        for _ in range(200):
            acceptance.add([100], [accepted])
    assert acceptance.at(0) == pytest.approx(0.2, abs=0.01)
    for _ in range(1000):
        acceptance.add([0], [0])
    assert acceptance.at(0) == pytest.approx(0.2, abs=0.01), "calls without drafts say nothing"


def test_more_positions_may_come_later() -> None:
    acceptance = Acceptance()
    acceptance.add([10], [5])
    acceptance.add([10, 10], [5, 5])
    acceptance.add([10], [5])
    assert acceptance.at(0) == pytest.approx(0.5, abs=0.02)
    assert acceptance.at(1) > acceptance.at(0)


@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8), max_size=8), st.integers(0, 6))
def test_shares_are_shares_and_more_drafts_give_more_tokens(passes: list[list[tuple[int, int]]], drafts: int) -> None:
    acceptance = Acceptance()
    for rows in passes:
        acceptance.add(*counts([length for length, _ in rows], [min(row) for row in rows]))
    assert all(0 < acceptance.at(position) <= 1 for position in range(6))
    tokens = acceptance.tokens(drafts)
    assert tokens < acceptance.tokens(drafts + 1) <= tokens + 1
