"""Whether a draft is verified does not depend on what follows from it: a law of every rule that chooses."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from worker.strategies.admission import make
from worker.strategies.costs import Costs
from worker.strategies.seam import Admission, Chances, Drafted, Strategy, Way

unhurried = settings(deadline=None)
#: Some are alike, some say that there is no draft.
CHANCE = st.one_of(st.sampled_from([0.0, 0.3, 0.9, 0.9, 1.0]), st.floats(0, 1))
SHAPES = st.tuples(st.integers(1, 6), st.integers(2, 5))
CHANCES = SHAPES.flatmap(lambda shape: arrays.arrays(np.float64, shape, elements=CHANCE))


def rising(tokens: int) -> float:
    """V with a floor, a step, and a slope."""
    return max(8.0, 0.6 * tokens) + (4.0 if tokens > 12 else 0.0)


def tetris(drafts: int, past: Chances) -> Admission:
    return taught(make(Strategy(admission="tetris", extra=drafts // 2), drafts, Costs()), past)


def confidence(drafts: int, past: Chances) -> Admission:
    costs = Costs()
    for tokens in range(1, 40):
        costs.verified(tokens, tokens, rising(tokens))
        costs.drafted(tokens, tokens, drafts, 5.0)
    return taught(make(Strategy(admission="confidence"), drafts, costs), past)


def taught(rule: Admission, past: Chances) -> Admission:
    """A rule that has seen drafts of which every second row had its first one accepted."""
    rows, drafts = past.shape
    rule.verified(past, np.full(rows, drafts), np.arange(rows) % 2)
    return rule


RULES = pytest.mark.parametrize("rule", [tetris, confidence])
Rule = Callable[[int, Chances], Admission]


@RULES
@unhurried
@given(data=st.data(), chances=CHANCES, past=CHANCES, way=st.sampled_from(Way))
def test_what_follows_from_a_draft_does_not_change_whether_it_is_verified(
    rule: Rule, data: st.DataObject, chances: Chances, past: Chances, way: Way
) -> None:
    rows, drafts = chances.shape
    admission = rule(drafts, past)
    counts = admission.admit(Drafted(chances, way))
    row, place = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, drafts - 2))
    other = chances.copy()
    other[row, place + 1 :] = data.draw(arrays.arrays(np.float64, drafts - place - 1, elements=CHANCE))
    changed = admission.admit(Drafted(other, way))
    assert (counts[row] > place) == (changed[row] > place)


@RULES
@unhurried
@given(data=st.data(), chances=CHANCES, past=CHANCES, way=st.sampled_from(Way))
def test_what_follows_from_a_draft_that_is_not_verified_changes_nothing(
    rule: Rule, data: st.DataObject, chances: Chances, past: Chances, way: Way
) -> None:
    """So rows do not tell each other what was drawn for them, and the texts of a batch are independent."""
    rows, drafts = chances.shape
    admission = rule(drafts, past)
    counts = admission.admit(Drafted(chances, way))
    row = data.draw(st.integers(0, rows - 1))
    other = chances.copy()
    beyond = drafts - int(counts[row]) - 1
    if beyond > 0:
        other[row, counts[row] + 1 :] = data.draw(arrays.arrays(np.float64, beyond, elements=CHANCE))
    assert admission.admit(Drafted(other, way)).tolist() == counts.tolist()


@RULES
@unhurried
@given(chances=CHANCES, past=CHANCES, way=st.sampled_from(Way))
def test_no_draft_is_verified_that_is_not_there(rule: Rule, chances: Chances, past: Chances, way: Way) -> None:
    counts = rule(chances.shape[1], past).admit(Drafted(chances, way))
    there = np.cumprod(chances > 0, axis=1).sum(axis=1)
    assert counts.shape == there.shape
    assert (counts <= there).all()
    assert (counts >= 0).all()
