import itertools

import numpy as np
import pytest
import torch

from worker.minedraft.sampling_v2 import compare


def slowly(sampled: list[int], drafts: list[int], starts: list[int]) -> list[list[int]]:
    """Row by row: a draft stays while it is what was sampled at the place before it."""
    found = []
    for first, end in itertools.pairwise(starts):
        said = [sampled[first]]
        for place in range(first + 1, end):
            if drafts[place] != said[-1]:
                break
            said.append(sampled[place])
        found.append(said)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_a_draft_stays_while_it_is_what_was_sampled(seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = random.integers(0, 4, size=7)  # drafts of each row
    starts = [0, *np.cumsum(counts + 1).tolist()]
    sampled, drafts = (random.integers(0, 2, size=starts[-1]).tolist() for _ in range(2))
    ids, valid = compare(torch.tensor(sampled), torch.tensor(drafts), torch.tensor(starts), places=4)
    assert ids.shape == (7, 4)
    assert valid.dtype == torch.int32
    said = [row[:count] for row, count in zip(ids.tolist(), valid.tolist(), strict=True)]
    assert said == slowly(sampled, drafts, starts)


def test_a_placeholder_is_no_draft() -> None:
    """Nothing that is sampled is -1, so the second draft is not looked at even though it would fit."""
    ids, valid = compare(torch.tensor([4, 5, 6]), torch.tensor([3, -1, 5]), torch.tensor([0, 3]), places=3)
    assert valid.tolist() == [1]
    assert ids[0, 0] == 4
