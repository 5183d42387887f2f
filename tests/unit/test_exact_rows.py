"""What a row must be distributed as: each parameter against an example worked out by hand, and answers in cells."""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from exact_rows import OTHER, Numbers, Text, Words, grow, probabilities, weigh

#: Five tokens; the end has id 1.
SHARES = np.array([0.4, 0.05, 0.3, 0.15, 0.1])
LOGITS = np.log(SHARES)
WORDS = Words(prompt=(3,))


def shares(text: Text = (), words: Words = WORDS, logits: Numbers = LOGITS, **body: Any) -> list[float]:
    return probabilities(logits, body, words, text).round(6).tolist()


def normal(*weights: float) -> list[float]:
    return (np.array(weights) / sum(weights)).round(6).tolist()


def test_nothing_is_asked_for() -> None:
    assert shares() == normal(*SHARES)


def test_temperature_is_a_power() -> None:
    assert shares(temperature=0.5) == normal(*SHARES**2)


def test_top_k_keeps_the_likeliest() -> None:
    assert shares(top_k=2) == normal(0.4, 0, 0.3, 0, 0)


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    assert shares(top_p=0.65) == normal(0.4, 0, 0.3, 0, 0)
    assert shares(top_p=0.75) == normal(0.4, 0, 0.3, 0.15, 0)
    assert shares(top_p=0.001) == normal(1, 0, 0, 0, 0)


def test_top_p_counts_what_top_k_leaves() -> None:
    assert shares(top_p=0.55, top_k=2) == normal(1, 0, 0, 0, 0)  # 0.4 of 0.7 is enough


def test_min_p_is_relative_to_the_likeliest_after_temperature() -> None:
    assert shares(min_p=0.3) == normal(0.4, 0, 0.3, 0.15, 0)
    assert shares(min_p=0.3, temperature=0.5) == normal(0.16, 0, 0.09, 0, 0)


def test_logit_bias_is_added() -> None:
    assert shares(logit_bias={"4": np.log(3)}) == normal(0.4, 0.05, 0.3, 0.15, 0.3)


def test_repetition_makes_weaker_what_the_prompt_or_the_answer_has() -> None:
    logits = np.array([2.0, -1.0, 1.0, -2.0, 0.5])
    wanted = np.exp([1.0, -1.0, 1.0, -4.0, 0.5])
    assert shares((0, 0), logits=logits, repetition_penalty=2.0) == normal(*wanted)


def test_presence_counts_once_and_frequency_each_time_and_neither_counts_the_prompt() -> None:
    assert shares((0, 0, 2), presence_penalty=1.0) == normal(*SHARES * np.exp([-1.0, 0, -1, 0, 0]))
    assert shares((0, 0, 2), frequency_penalty=1.0) == normal(*SHARES * np.exp([-2.0, 0, -1, 0, 0]))


def test_a_bad_word_cannot_be_ended() -> None:
    words = Words(prompt=(3,), bad=((4,), (0, 2)))
    assert shares((), words) == normal(0.4, 0.05, 0.3, 0.15, 0)
    assert shares((0,), words) == normal(0.4, 0.05, 0, 0.15, 0)
    assert shares((0, 3), words) == normal(0.4, 0.05, 0.3, 0.15, 0)


def test_an_answer_cannot_end_before_min_tokens() -> None:
    asked = {"min_tokens": 2, "stop_token_ids": [0]}
    assert shares((2,), **asked) == normal(0, 0, 0.3, 0.15, 0.1)
    assert shares((2, 2), **asked) == normal(*SHARES)


def test_only_allowed_tokens_are_there() -> None:
    assert shares(allowed_token_ids=[1, 2]) == normal(0, 0.05, 0.3, 0, 0)


def test_a_grammar_allows_all_ways_to_say_a_word_and_then_the_end() -> None:
    words = Words((3,), language=frozenset({"ab", "abb", "c"}), spelling=["a", "", "ab", "b", "d"])
    assert shares((), words) == normal(0.4, 0, 0.3, 0, 0)
    assert shares((0,), words) == normal(0, 0, 0, 1, 0)
    assert shares((2,), words) == normal(0, 0.05, 0, 0.15, 0)
    assert shares((2, 3), words) == normal(0, 1, 0, 0, 0)


async def markov(texts: Sequence[Text]) -> Numbers:
    """Logits that depend on the last token."""
    return np.array([np.roll(LOGITS, text[-1] if text else 0) for text in texts])


async def exactly(text: Text) -> float:
    rows = np.exp(await markov([text[:place] for place in range(len(text))]))
    return prod(float(row[token]) for row, token in zip(rows, text, strict=True))


@pytest.mark.parametrize("least", [1e-9, 0.01, 0.1])
async def test_cells_add_up_to_the_answers_in_them(least: float) -> None:
    tree = await grow(markov, {"max_tokens": 3, "ignore_eos": True}, WORDS, least=least)
    assert sum(tree.cells.values()) == pytest.approx(1)
    sums = dict.fromkeys(tree.cells, 0.0)
    for text in product(range(5), repeat=3):
        sums[tree.cell(text)] += await exactly(text)
    assert sums == pytest.approx(tree.cells)


async def test_likely_answers_have_cells_of_their_own() -> None:
    tree = await grow(markov, {"max_tokens": 3, "ignore_eos": True}, WORDS, least=0.05)
    assert tree.cell((0, 0, 0)) == (0, 0, 0)
    assert tree.cell((0, 0, 1)) == (0, 0, OTHER)
    assert tree.cell((1, 0, 0)) == (1,)  # 0.05, and nothing that follows is as likely
    assert tree.cell((4, 0, 0)) in tree.cells


async def test_answers_end_where_the_row_says() -> None:
    body = {"max_tokens": 3, "stop_token_ids": [2]}
    tree = await grow(markov, body, WORDS, least=0.01)
    assert sum(tree.cells.values()) == pytest.approx(1)
    assert tree.cell((2,)) == (2,)
    assert tree.cells[(2,)] == pytest.approx(0.3)
    assert tree.cells[(1,)] == pytest.approx(0.05)
    assert tree.cell((0,)) not in tree.cells  # it cannot end here


async def test_another_row_is_weighed_in_the_same_cells() -> None:
    body = {"max_tokens": 3, "ignore_eos": True}
    tree = await grow(markov, {**body, "top_k": 3}, WORDS, least=0.05)
    assert await weigh(tree, markov, {**body, "top_k": 3}, WORDS) == pytest.approx(tree.cells)
    without = await weigh(tree, markov, body, WORDS)
    assert sum(without.values()) == pytest.approx(1)
    assert without[(OTHER,)] == pytest.approx(0.15)
    assert tree.cells[(OTHER,)] == 0


async def test_a_forgetful_row_is_weighed_as_if_its_parameters_missed_tokens() -> None:
    body = {"max_tokens": 2, "ignore_eos": True, "presence_penalty": 1.0}
    tree = await grow(markov, body, WORDS, least=0.001)
    forgetful = await weigh(tree, markov, body, WORDS, memory=0)
    assert forgetful == pytest.approx(await weigh(tree, markov, {**body, "presence_penalty": 0.0}, WORDS))
    assert forgetful != pytest.approx(tree.cells)
