"""The theory's table, and what it says about itself."""

import pytest

from worker.lab.theory import best_times, speedup


@pytest.mark.parametrize(
    ("alpha_v", "ratio"),
    [
        (0.1, 1.44),
        (0.5, 1.86),
        (1, 1.99),
        (1.26, 2.00),
        (1.68, 1.98),
        (3, 1.82),
        (5.2, 1.59),
        (10, 1.36),
        (20, 1.21),
    ],
)
def test_the_table(alpha_v: float, ratio: float) -> None:
    assert round(speedup(alpha_v), 2) == ratio


@pytest.mark.parametrize("alpha_v", [0.02, 0.3, 1.26, 7.0, 40.0])
def test_the_times_are_the_least_over_t(alpha_v: float) -> None:
    import math

    tried = [step / 2000 * max(3.0, 2 * alpha_v) for step in range(1, 2001)]
    one, two = best_times(alpha_v)
    assert one == pytest.approx(min((alpha_v + x) / -math.expm1(-x) for x in tried), rel=1e-3)
    assert two == pytest.approx(min(max(alpha_v, x) / -math.expm1(-x) for x in tried), rel=1e-2)


def test_two_batches_are_never_more_than_twice_as_fast() -> None:
    assert all(1 < speedup(step / 50) <= 2 for step in range(1, 2000))
