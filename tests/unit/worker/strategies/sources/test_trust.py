"""What a source says of its drafts is put right by what became of them."""

import pytest

from worker.strategies.sources.trust import Trust, believed


def test_at_first_a_chance_is_taken_as_it_is() -> None:
    trust = Trust()
    for chance in (0.0, 0.3, 0.5, 0.9, 1.0):
        assert trust(chance) == pytest.approx(chance, abs=0.04)


def test_a_source_that_says_too_much_is_believed_less() -> None:
    trust = Trust()
    for turn in range(640):  # 0.9 each; the first is accepted in half of the rows, the second never
        trust.add([0.9, 0.9], 2, turn % 2)
    assert trust(0.9) == pytest.approx(1 / 3, abs=0.08)
    for _ in range(6400):
        trust.add([0.9], 1, 1)
    assert trust(0.9) > 0.9, "what is old counts less"


def test_drafts_that_were_not_verified_say_nothing() -> None:
    trust = Trust()
    for _ in range(640):
        trust.add([0.5, 0.9], 1, 1)
    assert trust(0.5) > 0.9
    assert trust(0.2) < 0.3


def test_more_words_are_believed_more() -> None:
    chances = [believed(length) for length in range(30)]
    assert chances == sorted(chances)
    assert 0 == chances[0] < chances[-1] < 1
