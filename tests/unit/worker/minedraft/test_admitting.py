"""What is sent of what was drafted."""

import numpy as np
import torch
from numpy.typing import NDArray
from steps import table

from worker.minedraft.admitting import Admitting, guessed, message
from worker.minedraft.link import REJECTED
from worker.minedraft.relay import NO_DRAFT
from worker.strategies.seam import Chances, Counts, Drafted, Way

X, NONE = REJECTED, NO_DRAFT


def test_a_row_goes_on_where_all_drafts_were_accepted_and_the_token_after_them_was_guessed() -> None:
    sampled = table([[1, 2, 9], [1, 2, 8], [1, X, X], [9, X, X], [9, 4, X], [X, X, X]])
    drafts = torch.tensor([2, 2, 2, 0, 0, 0])
    hits = guessed(sampled, drafts, torch.full((6,), 9))
    # The fifth has no drafts, but a zero in place of one, which was sampled: its text is a token further.
    assert hits.tolist() == [True, False, False, True, False, False]


def test_a_message_is_as_wide_as_drafts_can_be() -> None:
    sent = message(torch.tensor([[1, 2], [3, 4], [5, 6]]), np.array([2, 0, 1]), 3)
    assert sent.dtype == torch.int32
    assert sent.tolist() == [[1, 2, NONE], [NONE] * 3, [5, NONE, NONE]]
    assert message(torch.empty(2, 0), np.array([0, 0]), 2).tolist() == [[NONE] * 2] * 2


class Rule:
    """Admits the sure ones, whatever there is, and writes down what it is told."""

    needs_chances = True

    def __init__(self) -> None:
        self.asked: list[Drafted] = []
        self.told: list[tuple[list[list[float]], list[int], list[int]]] = []

    def admit(self, drafted: Drafted) -> Counts:
        self.asked.append(drafted)
        first: NDArray[np.int64] = np.full(len(drafted.chances), drafted.chances.shape[1])
        return first

    def verified(self, chances: Chances, counts: Counts, accepted: Counts) -> None:
        self.told.append((chances.tolist(), counts.tolist(), accepted.tolist()))


def test_a_rule_sees_the_chances_of_drafts_that_there_are_and_admits_no_others() -> None:
    rule, refreshed = Rule(), []
    admitting = Admitting(rule, 3, lambda: refreshed.append(1))
    chances = torch.tensor([[0.5, 0.25], [0.75, 0.125], [1.0, 1.0]])
    assert admitting.admit(["a", "b", "c"], chances, np.array([2, 1, 0]), Way.ONE).tolist() == [2, 1, 0]
    (asked,) = rule.asked
    assert asked.chances.tolist() == [[0.5, 0.25], [0.75, 0.0], [0.0, 0.0]]
    assert asked.way is Way.ONE
    assert refreshed == [1]


def test_a_rule_is_told_what_came_of_drafts_once_with_their_chances() -> None:
    rule = Rule()
    admitting = Admitting(rule, 3, lambda: None)
    admitting.admit(["a", "b", "c"], torch.tensor([[0.5, 0.25]] * 3), np.array([2, 2, 2]), Way.TWO)
    admitting.forget({"c"})
    # b has only one draft of its two, and a zero after it that was sampled, too; d is not known.
    admitting.verified(
        ["a", "b", "c", "d"], {"a": 2, "b": 1, "c": 2, "d": 1}, table([[1, X, X], [1, 0, 1], [1] * 3, [1] * 3])
    )
    assert rule.told == [([[0.5, 0.25, 0.0]] * 2, [2, 1], [0, 1])]
    admitting.verified(["a"], {"a": 2}, table([[1, 2, 3]]))
    admitting.verified([], {}, torch.empty(0, 1))
    assert len(rule.told) == 1
