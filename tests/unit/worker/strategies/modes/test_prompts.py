"""How much of what is read is prompts."""

import pytest

from worker.strategies.modes.prompts import Prompts, Reading


def test_nothing_is_read_before_anything_is() -> None:
    assert Prompts().reading == Reading(0, 0)


def test_prompts_are_told_by_their_share_and_their_size() -> None:
    prompts = Prompts()
    for number in range(800):
        prompts.add(1000 if number % 4 == 0 else 0, 50)
    assert prompts.reading.share == pytest.approx(5, rel=0.05)
    assert prompts.reading.lump == pytest.approx(1000, rel=1e-6)


def test_what_was_long_ago_is_forgotten() -> None:
    prompts = Prompts()
    for read in [1000] * 300 + [0] * 600:
        prompts.add(read, 50)
    assert prompts.reading.share < 0.01
