"""The tests of samples: what they pass, what they find, and how often they are wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_of_rows import (
    FALSE_ALARM,
    MISSED,
    compare,
    distance,
    distance_bound,
    fit,
    found_at,
    found_share,
    samples_needed,
    tail,
)

COIN = {"heads": 0.5, "tails": 0.5}
#: 60 outcomes, from likely to rare: most are counted together in the chi-square test of 4,000 samples.
SKEWED = dict(enumerate(np.random.default_rng(1).dirichlet(np.full(60, 0.4)).tolist()))


def drawn(shares: dict[int, float], samples: int, seed: int) -> dict[int, int]:
    counts = np.random.default_rng(seed).multinomial(samples, list(shares.values()))
    return dict(zip(shares, map(int, counts), strict=True))


def test_the_statistics_are_those_of_the_book() -> None:
    found = fit({"heads": 60, "tails": 40}, COIN)
    assert found.chi_square == pytest.approx(4.0)
    assert found.freedom == 1
    assert found.p_value == pytest.approx(0.0455, abs=1e-4)
    assert found.distance == pytest.approx(0.1)
    assert tail(18.307, 10) == pytest.approx(0.05, abs=1e-5)
    two = compare({"heads": 60, "tails": 40}, {"heads": 45, "tails": 55})
    assert two.chi_square == pytest.approx(4.511, abs=1e-3)
    assert two.distance == pytest.approx(0.15)


def test_what_should_be_is_passed() -> None:
    for seed in range(50):
        assert fit(drawn(SKEWED, 4000, seed), SKEWED)
        assert compare(drawn(SKEWED, 4000, seed), drawn(SKEWED, 2000, seed + 50))


def test_what_cannot_be_fails_at_once() -> None:
    for expected in ({"a": 0.5, "b": 0.5, "c": 0.0}, {"a": 0.5, "b": 0.5}):
        found = fit({"a": 2000, "b": 1999, "c": 1}, expected)
        assert found.impossible == 1
        assert not found


def test_one_outcome_alone_fits_and_nothing_is_told_apart() -> None:
    assert fit({"a": 10}, {"a": 1.0}).freedom == 0
    assert fit({"a": 10}, {"a": 1.0})


def test_rare_cells_are_counted_as_one_that_is_not_rare() -> None:
    rare = {"a": 0.985, **{str(i): 0.005 / 5 for i in range(5)}, "b": 0.01}
    # 985, 10 and five times 1 expected: what is rare has 15 together, which is too few, so one cell is left.
    assert fit({"a": 1000}, rare).freedom == 0
    assert fit({"a": 2000}, rare).freedom == 1


@pytest.mark.parametrize("alpha", [1e-2, 1e-3])
def test_false_alarms_are_as_rare_as_is_said(alpha: float) -> None:
    tries = 1000
    alarms = sum(not fit(drawn(SKEWED, 4000, seed), SKEWED, alpha) for seed in range(tries))
    assert alarms <= alpha * tries + 5 * (alpha * tries) ** 0.5


def test_two_samples_of_one_distribution_are_seldom_told_apart() -> None:
    tries, alpha = 500, 1e-2
    pairs = ((drawn(SKEWED, 4000, seed), drawn(SKEWED, 3000, tries + seed)) for seed in range(tries))
    alarms = sum(not compare(one, other, alpha) for one, other in pairs)
    assert alarms <= alpha * tries + 5 * (alpha * tries) ** 0.5


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), cells=st.integers(2, 30), samples=st.integers(50, 5000))
def test_no_sample_is_farther_away_than_the_bound(seed: int, cells: int, samples: int) -> None:
    shares = dict(enumerate(np.random.default_rng(seed).dirichlet(np.ones(cells)).tolist()))
    assert fit(drawn(shares, samples, seed), shares).distance <= distance_bound(cells, samples, 1e-9)


def test_deviations_are_found_from_the_distance_on_that_is_stated() -> None:
    cells, samples = 8, 4000
    even = dict.fromkeys(range(cells), 1 / cells)
    far = found_at(cells, samples)
    other = {cell: 1 / cells + (far if cell < cells / 2 else -far) / (cells / 2) for cell in even}
    assert distance(even, other) == pytest.approx(far)
    assert far < 0.08
    assert found_share(even, other, samples) >= 1 - MISSED
    assert found_share(even, even, samples) == 0
    # The chi-square test finds what is nearer, too, where few outcomes have all of it.
    halved = {cell: (1 / 16 if cell == 0 else (1 - 1 / 16) / 7) for cell in even}
    assert distance(even, halved) < far
    assert found_share(even, halved, samples) >= 1 - MISSED


def test_the_bound_alone_keeps_its_promise() -> None:
    """`found_at` promises for the distance alone; it is tried without the chi-square test."""
    cells, samples = 4, 1000
    far = found_at(cells, samples)
    other = [1 / cells + far / 2, 1 / cells + far / 2, 1 / cells - far / 2, 1 / cells - far / 2]
    counts = np.random.default_rng(0).multinomial(samples, other, size=20_000)
    distances = np.abs(counts / samples - 1 / cells).sum(axis=1) / 2
    assert (distances <= distance_bound(cells, samples, FALSE_ALARM / 2)).mean() <= MISSED


def test_the_samples_needed_are_those_that_find_the_distance() -> None:
    needed = samples_needed(8, 0.05)
    assert found_at(8, needed) <= 0.05 < found_at(8, needed - 1)
