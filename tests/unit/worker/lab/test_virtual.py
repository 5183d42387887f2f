"""What imagined models say."""

import numpy as np
import pytest

from worker.lab.tiny import CONFIG
from worker.lab.virtual import FIRST_ID, LAST_ID, accepted, draft_ids, target_ids

SEEDS = np.arange(50, dtype=np.uint64)


def positions(first: int, count: int, requests: int = len(SEEDS)) -> np.ndarray:
    return np.full((requests, 1), first) + np.arange(count)


def test_the_target_says_the_same_wherever_it_is_asked_from() -> None:
    whole = target_ids(SEEDS, positions(100, 64))
    assert np.array_equal(target_ids(SEEDS[7:9], positions(117, 3, 2)), whole[7:9, 17:20])


def test_texts_differ_and_use_what_the_vocabulary_has() -> None:
    whole = target_ids(SEEDS, positions(0, 2000))
    assert len({row.tobytes() for row in whole}) == len(SEEDS)
    assert (whole.min(), whole.max()) == (FIRST_ID, LAST_ID)
    assert CONFIG.vocab_size > LAST_ID
    assert max(CONFIG.bos_token_id, CONFIG.eos_token_id, CONFIG.pad_token_id) < FIRST_ID
    counts = np.bincount(whole.ravel() - FIRST_ID)
    assert counts.min() > 0.7 * counts.mean()
    assert counts.max() < 1.3 * counts.mean()


@pytest.mark.parametrize("acceptance", [[0.9, 0.5, 0.1], [1.0, 1.0, 0.0]])
def test_drafts_are_right_as_often_as_is_said_at_each_position(acceptance: list[float]) -> None:
    for first in (0, 1000):
        places = positions(first, 3)
        right = np.array(
            [
                draft_ids(SEEDS, places + 3 * turn, np.array(acceptance)) == target_ids(SEEDS, places + 3 * turn)
                for turn in range(200)
            ]
        )
        assert right.mean(axis=(0, 1)) == pytest.approx(acceptance, abs=0.02)


def test_a_draft_is_a_token_that_says_something_even_where_it_is_wrong() -> None:
    drafts = draft_ids(SEEDS, positions(0, 2000), np.zeros(2000))
    assert (drafts.min(), drafts.max()) == (FIRST_ID, LAST_ID)
    assert not (drafts == target_ids(SEEDS, positions(0, 2000))).any()


def test_drafts_count_from_the_first_to_the_first_that_is_wrong() -> None:
    target = np.array([[1, 2, 3]] * 5)
    drafts = np.array([[1, 2, 3], [1, 9, 3], [9, 2, 3], [1, 2, 3], [1, 2, 3]])
    assert accepted(drafts, target, np.array([3, 3, 3, 2, 0])).tolist() == [3, 1, 0, 2, 0]
