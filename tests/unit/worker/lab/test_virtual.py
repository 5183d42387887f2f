"""How long imagined models wait, and for which places they speak; what they say is `test_text.py`'s."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from worker.lab import virtual
from worker.lab.profile import PassCost, Profile
from worker.lab.text import Chances, target_ids
from worker.lab.virtual import VirtualDrafts, VirtualTarget
from worker.minedraft.link import REJECTED
from worker.strategies.seam import Way

COST = PassCost(fixed_ms=1.0, token_ms=1.0, context_token_ms=0.001)
PROFILE = Profile("p", 4, target=COST, draft=COST, acceptance=(1.0,))
#: Two rows that have verified 100 and 200 tokens; the second one's prompt is as long as the first one's, and another.
COMPUTED = (100, 200)
PROMPTS = {"a": [1, 2, 3], "b": [3, 2, 1]}


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Ms of each wait, none of which happens."""
    times: list[float] = []
    monkeypatch.setattr(virtual, "_wait", lambda _, ms: times.append(ms))
    return times


def step(drafts: dict[str, list[int]], asked: int = 3, way: Way = Way.TWO) -> Any:
    tokens = {request: 1 + len(drafts.get(request, ())) for request in PROMPTS}
    return SimpleNamespace(
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        scheduled_spec_decode_tokens=drafts,
        num_spec_tokens_to_schedule=asked,
        way=int(way),
    )


class _Between:
    """What vLLM's runner has between a step's beginning and its sampling."""

    def __init__(self, scheduled: Any, profile: Profile = PROFILE) -> None:
        self.scheduled, self.profile = scheduled, profile
        self.input_batch = SimpleNamespace(
            req_ids=list(PROMPTS), num_reqs=2, num_computed_tokens_cpu=np.array([*COMPUTED, 0, 0])
        )
        self.requests = {name: SimpleNamespace(prompt_token_ids=prompt) for name, prompt in PROMPTS.items()}
        self.told: list[Chances] = []


class Drafts(_Between, VirtualDrafts):
    def tell(self, likely: Chances) -> None:
        self.told.append(likely)


class Target(_Between, VirtualTarget):
    model_config, dtype = SimpleNamespace(get_hidden_size=lambda: 8), torch.float32


def said(runner: Any, first: list[int], count: int) -> np.ndarray:
    """What the target says from places on."""
    return target_ids(runner.seeds(), np.array(first)[:, None] + np.arange(count))


def drafted(runner: Drafts, sampled: list[list[int]]) -> np.ndarray:
    return np.asarray(runner.propose_draft_token_ids(runner.scheduled, torch.tensor(sampled)))


def test_drafts_follow_what_was_sampled(waited: list[float]) -> None:
    # Of the first row's drafts one was accepted, and a token sampled; the second one had none.
    runner = Drafts(step({"a": [5, 6]}))
    assert np.array_equal(drafted(runner, [[5, 9, REJECTED], [7, REJECTED, REJECTED]]), said(runner, [103, 202], 3))
    assert waited == [PROFILE.passes_ms(2, 4, 3, context=150)]


def test_ahead_drafts_follow_those_that_are_verified_and_nothing_is_sampled_yet(waited: list[float]) -> None:
    runner = Drafts(step({"a": [5, 6]}, asked=4, way=Way.AHEAD))
    nothing = [[REJECTED] * 3] * 2
    assert np.array_equal(drafted(runner, nothing), said(runner, [103, 201], 4))
    assert waited == [PROFILE.passes_ms(2, 4, 4, context=150)]


@pytest.mark.parametrize("asked", [0, 1, 5])
def test_so_many_are_drafted_as_a_call_asks_for_and_take_their_time(asked: int, waited: list[float]) -> None:
    runner = Drafts(step({"a": [5, 6], "b": [7]}, asked=asked))
    assert drafted(runner, [[5, 6, 1], [7, 1, REJECTED]]).shape == (2, asked)
    assert waited == [PROFILE.passes_ms(2, 5, asked, context=150)]
    assert runner.told[0].shape == (2, asked)


def test_a_drafter_says_how_sure_it_is(waited: list[float]) -> None:
    sure = Profile("p", 4, target=COST, draft=COST, acceptance=(0.6,), spread=1.0)
    runner = Drafts(step({}, asked=200), sure)
    right = drafted(runner, [[9], [9]]) == said(runner, [102, 202], 200)
    assert np.array_equal(runner.told[0], right)


def test_a_pass_takes_as_long_as_the_tokens_that_are_verified(waited: list[float]) -> None:
    for drafts in ({"a": [5, 6, 7], "b": [5, 6, 7]}, {"b": [5]}, {}):
        runner = Target(step(drafts))
        tokens = 2 + sum(map(len, drafts.values()))
        assert runner._model_forward(torch.zeros(tokens)).shape == (tokens, 8)
        assert waited[-1] == COST.ms(tokens, context=300)


def test_drafts_are_accepted_while_they_are_what_the_target_says() -> None:
    runner = Target(step({}))
    right = said(runner, [101, 201], 3).tolist()
    runner.scheduled = step({"a": [*right[0][:1], 0, *right[0][2:]]})
    ids = runner._sample(None, None).sampled_token_ids
    whole = said(runner, [101, 201], 3)
    assert ids.tolist() == [[*whole[0][:2].tolist(), REJECTED, REJECTED], [whole[1][0], *[REJECTED] * 3]]
