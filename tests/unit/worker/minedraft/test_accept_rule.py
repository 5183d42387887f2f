"""Drafts that were drawn are checked so that texts are the target's own; and a wrong rule is found out."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from speculated import RIGHT, Flags, Numbers, Rule, Tokens, at, exact, residual, speculate
from statistics_of_rows import Fit, fit

from worker.minedraft import sampling

ROWS, LENGTH = 50_000, 3
#: What follows each of four tokens. Draft and target agree on a share of 0.45 to 0.9; one token never follows token 2.
TARGET = np.array([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4], [0.6, 0.4, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
DRAFT = np.array([[0.3, 0.3, 0.1, 0.3], [0.4, 0.3, 0.2, 0.1], [0.5, 0.1, 0.4, 0.0], [0.3, 0.2, 0.3, 0.2]])


def our_accepts(p: Numbers, q: Numbers, drafts: Tokens, uniform: Numbers) -> Flags:
    kept: Flags = sampling.accepts(*map(torch.from_numpy, (p, q, drafts, uniform))).numpy()
    return kept


def our_residual(p: Numbers, q: Numbers) -> Numbers:
    weights: Numbers = sampling.residual(torch.from_numpy(p), torch.from_numpy(q)).numpy()
    return weights


OURS = Rule(our_accepts, our_residual)


def never(p: Numbers, q: Numbers, drafts: Tokens, uniform: Numbers) -> Flags:
    return np.zeros(len(drafts), bool)


def one_hot(q: Numbers, drafts: Tokens) -> Numbers:
    return np.eye(q.shape[1])[drafts]


def measured(rule: Rule, *, drafts: int = 2, seed: int = 0) -> Fit:
    texts = speculate(rule, TARGET, DRAFT, rows=ROWS, length=LENGTH, drafts=drafts, seed=seed)
    found = fit(Counter(map(tuple, texts.tolist())), exact(TARGET, LENGTH))
    print(found)
    return found


@pytest.mark.parametrize("drafts", [1, 2, 3])
def test_texts_are_those_of_the_target(drafts: int) -> None:
    assert measured(OURS, drafts=drafts)
    assert measured(RIGHT, drafts=drafts)


#: Rules with one thing wrong.
WRONG = {
    "every draft stays": replace(OURS, accepts=lambda p, q, d, u: u >= 0),
    "every possible draft stays": replace(OURS, accepts=lambda p, q, d, u: at(p, d) > 0),
    "no draft stays": replace(OURS, accepts=never),
    "p and q are swapped": replace(OURS, accepts=lambda p, q, d, u: our_accepts(q, p, d, u)),
    "q is left out": replace(OURS, accepts=lambda p, q, d, u: u < at(p, d)),
    "p is left out": replace(OURS, accepts=lambda p, q, d, u: u < at(q, d)),
    "a draft stays where the target likes it no less": replace(OURS, accepts=lambda p, q, d, u: at(p, d) >= at(q, d)),
    "the rule is turned round": replace(OURS, accepts=lambda p, q, d, u: ~our_accepts(p, q, d, u)),
    "drafts stay a little too often": replace(OURS, accepts=lambda p, q, d, u: our_accepts(p, q, d, u * 0.9)),
    "the residual is p": replace(OURS, residual=lambda p, q: p),
    "the residual is q": replace(OURS, residual=lambda p, q: q),
    "the residual is q - p": replace(OURS, residual=lambda p, q: our_residual(q, p)),
    "the residual is |p - q|": replace(OURS, residual=lambda p, q: np.abs(p - q)),
    "the residual is p without the draft, the draft judged by q": replace(
        OURS, residual=lambda p, q: np.where(q > p, 0, p)
    ),
    "the drafts come from another distribution": replace(OURS, drafted=lambda q: q**2),
    "the drafts come from none": replace(OURS, drafted=np.ones_like),
    "the drafts are the likeliest, but judged as drawn": replace(OURS, drafted=lambda q: one_hot(q, q.argmax(axis=1))),
    "the last token is the drafter's": replace(OURS, bonus=lambda p, q: q),
    "the last token is the likeliest": replace(OURS, bonus=lambda p, q: one_hot(p, p.argmax(axis=1))),
    "a step has one random number": replace(OURS, shared=True),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_rule_is_found_out(wrong: str) -> None:
    # Not by luck: with other random numbers, too. A false alarm would not look like that.
    assert not any(measured(WRONG[wrong], seed=seed) for seed in range(2))


#: Rules that are written otherwise, and right.
HARMLESS = {
    "the residual need not add up to 1": replace(OURS, residual=lambda p, q: 7 * residual(p, q)),
    "a tie may be accepted": replace(OURS, accepts=lambda p, q, d, u: u * at(q, d) <= at(p, d)),
    "nothing stays, and all is sampled": replace(OURS, accepts=never, residual=lambda p, q: p),
    "what follows a rejected draft may be drafted anew": replace(OURS, stops=False),
}


@pytest.mark.parametrize("harmless", HARMLESS)
def test_a_right_rule_is_not_blamed(harmless: str) -> None:
    assert measured(HARMLESS[harmless])


@st.composite
def distributions(draw: st.DrawFn) -> tuple[Numbers, Numbers]:
    """p and q [1, vocabulary], in which some tokens cannot be."""
    size = draw(st.integers(2, 12))
    weights = st.lists(st.one_of(st.just(0.0), st.floats(0.001, 1)), min_size=size, max_size=size).filter(any)
    p, q = (np.array([draw(weights)]) for _ in range(2))
    return p / p.sum(), q / q.sum()


@given(distributions())
@settings(deadline=None)
def test_accepted_and_residual_together_are_the_target(both: tuple[Numbers, Numbers]) -> None:
    """Without sampling: q(t) min(1, p/q) + (share rejected) residual(t) = p(t)."""
    p, q = both
    drafts = np.flatnonzero(q[0])
    ratio = np.minimum(1, p[0, drafts] / q[0, drafts])
    ps, qs = (np.repeat(table, len(drafts), axis=0) for table in both)
    assert our_accepts(ps, qs, drafts, ratio - 1e-9)[ratio > 0].all()
    assert not our_accepts(ps, qs, drafts, ratio + 1e-9)[ratio < 1].any()
    accepted = np.zeros_like(p[0])
    accepted[drafts] = q[0, drafts] * ratio
    assert accepted + (1 - accepted.sum()) * our_residual(p, q)[0] == pytest.approx(p[0], abs=1e-9)


@given(distributions())
@settings(deadline=None)
def test_what_the_target_cannot_say_never_stays_and_is_never_drawn(both: tuple[Numbers, Numbers]) -> None:
    p, q = both
    impossible = np.flatnonzero((p == 0) & (q > 0))
    tables = (np.repeat(table, len(impossible), axis=0) for table in both)
    assert not our_accepts(*tables, impossible % p.shape[1], np.zeros(len(impossible))).any()
    assert not our_residual(p, q)[p == 0].any()
