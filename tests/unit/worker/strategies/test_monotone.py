"""Numbers that grow, nearest to those that were measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.strategies.monotone import grown


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(0.1, 10)), min_size=1, max_size=12))
def test_growing_numbers_are_the_nearest(given_: list[tuple[float, float]]) -> None:
    values, weights = (np.array(column) for column in zip(*given_, strict=True))
    found = grown(values, weights)
    assert (np.diff(found) >= 0).all()
    # The conditions of an optimum: no head of the list would be better lower, and pools keep their mass.
    surplus = np.cumsum(weights * (values - found))
    assert (surplus >= -1e-6).all()
    assert surplus[-1] == pytest.approx(0, abs=1e-6)
    assert np.sum(weights * (values - found) * found) == pytest.approx(0, abs=1e-5)


def test_grown() -> None:
    assert grown(np.array([3.0, 1.0, 5.0, 4.0]), np.array([1.0, 3.0, 1.0, 1.0])).tolist() == [1.5, 1.5, 4.5, 4.5]
