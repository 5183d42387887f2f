"""What of the drafts that are asked for is verified and accepted."""

import pytest

from worker.strategies.acceptance import Acceptance
from worker.strategies.yields import Yields


def half(drafts: int) -> float:
    return drafts / 2


def test_before_anything_is_seen_all_drafts_are_verified() -> None:
    assert Yields().of(4, half) == (4, 2)


def test_what_is_trimmed_is_learnt() -> None:
    yields = Yields()
    for _ in range(200):
        yields.add(4, 32, 64, 48)  # half of the drafts, and three of four that would have been accepted
    verified, accepted = yields.of(4, half)
    assert verified == pytest.approx(2, rel=0.05)
    assert accepted == pytest.approx(1.5, rel=0.05)


def test_of_a_number_that_was_not_asked_for_it_is_as_of_the_nearest() -> None:
    yields = Yields()
    for _ in range(200):
        yields.add(4, 32, 64, 48)
        yields.add(1, 32, 32, 16)
    assert yields.of(5, half)[0] == pytest.approx(2.5, rel=0.05)
    assert yields.of(1, half) == pytest.approx((1, 0.5), rel=0.05)
    assert yields.of(0, half) == (0, 0)


def test_what_is_found_beside_is_its_own_number() -> None:
    yields = Yields()
    assert yields.of(0, half) == (0, 0)
    for _ in range(200):
        yields.add(0, 32, 96, 64)
    assert yields.of(0, half) == pytest.approx((3, 2), rel=0.05)
    assert yields.of(4, half) == (4, 2), "what is found where none is asked for says nothing of those that are"
    for _ in range(200):
        yields.add(2, 32, 96, 64)
    assert yields.of(2, half) == pytest.approx((3, 2), rel=0.05)
    assert yields.of(4, half) == pytest.approx((5, 3), rel=0.05), "one beside, whatever is asked for"


def test_what_is_old_is_forgotten() -> None:
    yields = Yields()
    for _ in range(500):
        yields.add(4, 32, 0, 0)
    for _ in range(500):
        yields.add(4, 32, 128, 64)
    assert yields.of(4, half) == pytest.approx((4, 2), rel=0.05)


def test_an_acceptance_says_what_rows_get_that_are_asked_for_drafts() -> None:
    acceptance = Acceptance()
    acceptance.add([10_000] * 2, [5_000, 2_500])
    assert acceptance.asked(2) == (3, acceptance.tokens(2))
    for _ in range(500):
        acceptance.yields.add(2, 32, 32, 20)
    verified, gained = acceptance.asked(2)
    assert verified == pytest.approx(2, rel=0.05)
    assert gained == pytest.approx(1 + 20 / 32, rel=0.05)
