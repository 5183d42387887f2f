"""What a chance stands for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.strategies.admission.calibration import Calibration


def told(calibration: Calibration, chance: float) -> float:
    return float(calibration(np.array([[chance]]))[0, 0])


@pytest.mark.parametrize("chance", [0.05, 0.3, 0.5, 0.9, 0.99, 1.0])
def test_a_chance_stands_for_itself_at_first(chance: float) -> None:
    assert told(Calibration(), chance) == pytest.approx(chance, abs=0.04)


def test_no_draft_stays_none() -> None:
    assert told(Calibration(), 0.0) == 0.0


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_what_was_accepted_is_learnt(power: float) -> None:
    random = np.random.default_rng(1)
    calibration = Calibration()
    for _ in range(100):
        chances = random.uniform(0, 1, (64, 4))
        right = random.uniform(0, 1, (64, 4)) < chances**power
        calibration.add(chances, np.full(64, 4), np.cumprod(right, axis=1).sum(axis=1))
    for chance in (0.2, 0.5, 0.8, 0.95):
        assert told(calibration, chance) == pytest.approx(chance**power, abs=0.06)


def test_drafts_after_a_rejected_one_say_nothing_nor_those_that_were_not_verified() -> None:
    calibration = Calibration()
    before = told(calibration, 0.5)
    for _ in range(100):
        calibration.add(np.array([[0.9, 0.5, 0.5], [0.9, 0.9, 0.5]]), np.array([3, 2]), np.array([0, 2]))
    assert told(calibration, 0.5) == pytest.approx(min(before, told(calibration, 0.9)))
    assert told(calibration, 0.9) == pytest.approx(2 / 3, abs=0.04), "of three that were tried two were accepted"


def test_what_was_long_ago_is_forgotten() -> None:
    calibration = Calibration()
    for accepted in (0, 1):
        for _ in range(100):
            calibration.add(np.full((100, 1), 0.5), np.ones(100, np.int64), np.full(100, accepted))
    assert told(calibration, 0.5) > 0.95


CHANCES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@settings(deadline=None)
@given(st.lists(st.tuples(CHANCES, st.integers(0, 30), st.integers(0, 30)), max_size=20), CHANCES)
def test_more_chance_never_stands_for_less(past: list[tuple[list[float], int, int]], chances: list[float]) -> None:
    calibration = Calibration()
    for row, counted, accepted in past:
        counts = min(counted, len(row))
        calibration.add(np.array([row]), np.array([counts]), np.array([min(accepted, counts)]))
    worth = calibration(np.sort(np.array([chances])))[0]
    assert (np.diff(worth) >= -1e-12).all()
    assert ((worth >= 0) & (worth <= 1)).all()
