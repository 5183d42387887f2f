"""What imagined models say."""

import numpy as np
import pytest

from worker.lab.text import FIRST_ID, LAST_ID, STRETCH, accepted, chances, draft_ids, target_ids
from worker.lab.tiny import CONFIG

SEEDS = np.arange(50, dtype=np.uint64)


def positions(first: int, count: int, requests: int = len(SEEDS)) -> np.ndarray:
    return np.full((requests, 1), first) + np.arange(count)


@pytest.mark.parametrize("template", [0.0, 0.6])
def test_the_target_says_the_same_wherever_it_is_asked_from(template: float) -> None:
    whole = target_ids(SEEDS, positions(100, 64), template)
    assert np.array_equal(target_ids(SEEDS[7:9], positions(117, 3, 2), template), whole[7:9, 17:20])


def test_texts_differ_and_use_what_the_vocabulary_has() -> None:
    whole = target_ids(SEEDS, positions(0, 2000))
    assert len({row.tobytes() for row in whole}) == len(SEEDS)
    assert (whole.min(), whole.max()) == (FIRST_ID, LAST_ID)
    assert CONFIG.vocab_size > LAST_ID
    assert max(CONFIG.bos_token_id, CONFIG.eos_token_id, CONFIG.pad_token_id) < FIRST_ID
    counts = np.bincount(whole.ravel() - FIRST_ID)
    assert counts.min() > 0.7 * counts.mean()
    assert counts.max() < 1.3 * counts.mean()


@pytest.mark.parametrize("template", [0.2, 0.6, 0.8, 1.0])
def test_a_template_is_that_share_of_all_texts_in_whole_stretches_and_the_rest_is_each_rows_own(
    template: float,
) -> None:
    whole, own = target_ids(SEEDS, positions(0, 2400), template), target_ids(SEEDS, positions(0, 2400))
    shared = (whole == whole[0]).all(axis=0)
    assert shared.mean() == pytest.approx(template, abs=0.01)
    assert np.array_equal(whole[:, ~shared], own[:, ~shared])
    assert shared[:STRETCH].all()
    assert template == 1 or not shared[STRETCH]


def test_stretches_of_a_template_differ_and_come_again_in_long_texts() -> None:
    text = target_ids(SEEDS, positions(0, 400), 0.6)[0]
    stretches = [text[begin : begin + STRETCH].tobytes() for begin in range(0, 400, 40)]
    assert stretches[4:8] == stretches[:4]
    assert len(set(stretches)) == 4


def test_a_row_has_nothing_of_a_template_where_there_is_none() -> None:
    whole = target_ids(SEEDS, positions(0, 2400))
    assert not (whole == whole[0]).all(axis=0).any()


@pytest.mark.parametrize("acceptance", [[0.9, 0.5, 0.1], [1.0, 1.0, 0.0]])
@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_drafts_are_right_as_often_as_is_said_at_each_position(acceptance: list[float], spread: float) -> None:
    for first in (0, 1000):
        right = []
        for turn in range(200):
            places = positions(first, 3) + 3 * turn
            likely = chances(SEEDS, places, np.array(acceptance), spread)
            right.append(draft_ids(SEEDS, places, likely) == target_ids(SEEDS, places))
        assert np.mean(right, axis=(0, 1)) == pytest.approx(acceptance, abs=0.02)


@pytest.mark.parametrize("spread", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("mean", [0.3, 0.7, 0.95])
def test_chances_have_the_variance_that_is_asked_for_and_are_kept(mean: float, spread: float) -> None:
    places = positions(0, 2000)
    likely = chances(SEEDS, places, np.full(2000, mean), spread)
    assert likely.mean() == pytest.approx(mean, abs=0.01)
    assert likely.var() == pytest.approx(spread * mean * (1 - mean), rel=0.05)
    right = draft_ids(SEEDS, places, likely, 0.5) == target_ids(SEEDS, places, 0.5)
    for low in np.arange(0, 1, 0.2):
        some = (likely >= low) & (likely < low + 0.2)
        if some.sum() > 1000:
            assert right[some].mean() == pytest.approx(likely[some].mean(), abs=0.04)


def test_a_drafter_that_knows_everything_is_sure_and_one_that_knows_nothing_says_the_mean() -> None:
    places = positions(0, 100)
    sure = chances(SEEDS, places, np.full(100, 0.7), 1.0)
    assert set(np.unique(sure)) == {0.0, 1.0}
    assert np.array_equal(draft_ids(SEEDS, places, sure) == target_ids(SEEDS, places), sure == 1)
    assert (chances(SEEDS, places, np.full(100, 0.7)) == 0.7).all()


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_no_drafts_have_no_chances(spread: float) -> None:
    likely = chances(SEEDS, positions(5, 0), np.array([]), spread)
    assert likely.shape == draft_ids(SEEDS, positions(5, 0), likely).shape == (len(SEEDS), 0)


def test_a_draft_is_a_token_that_says_something_even_where_it_is_wrong() -> None:
    drafts = draft_ids(SEEDS, positions(0, 2000), np.zeros((len(SEEDS), 2000)))
    assert (drafts.min(), drafts.max()) == (FIRST_ID, LAST_ID)
    assert not (drafts == target_ids(SEEDS, positions(0, 2000))).any()


def test_drafts_count_from_the_first_to_the_first_that_is_wrong() -> None:
    target = np.array([[1, 2, 3]] * 5)
    drafts = np.array([[1, 2, 3], [1, 9, 3], [9, 2, 3], [1, 2, 3], [1, 2, 3]])
    assert accepted(drafts, target, np.array([3, 3, 3, 2, 0])).tolist() == [3, 1, 0, 2, 0]
