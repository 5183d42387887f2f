"""Speculative decoding of a Markov chain, thousands of rows at once, with an accept rule of one's choice.

The target is a table of what follows each token, and so is the draft. Texts of a right rule are distributed as the
target's own. `RIGHT` is the rule of Leviathan et al., written out in numpy; `worker/minedraft/sampling.py` has its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Tokens = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Takes p and q [rows, vocabulary], drafts [rows] and uniform numbers [rows]: which drafts stay, [rows].
Accepts = Callable[[Numbers, Numbers, Tokens, Numbers], Flags]
#: Takes p and q: weights [rows, vocabulary] of the token in place of a rejected draft, which need not add up to 1.
Residual = Callable[[Numbers, Numbers], Numbers]


def accepts(p: Numbers, q: Numbers, drafts: Tokens, uniform: Numbers) -> Flags:
    """With probability min(1, p/q)."""
    return uniform * at(q, drafts) < at(p, drafts)


def residual(p: Numbers, q: Numbers) -> Numbers:
    """max(p - q, 0)."""
    return np.maximum(p - q, 0)


def same(p: Numbers) -> Numbers:
    """The bonus token's distribution is the target's."""
    return p


def at(table: Numbers, tokens: Tokens) -> Numbers:
    """Each row's number at its token."""
    found: Numbers = table[np.arange(len(tokens)), tokens]
    return found


@dataclass(frozen=True, slots=True)
class Rule:
    """How drafts are checked.

    Attributes:
        accepts: which drafts stay.
        residual: what is drawn from in place of a rejected one.
        drafted: what drafts are drawn from, given q; the rule itself is told q.
        bonus: the token after the last accepted draft is drawn from p here, given the p of that place and the q.
        shared: whether all drafts of a step have one random number.
        stops: whether what follows a rejected draft is thrown away.
    """

    accepts: Accepts = accepts
    residual: Residual = residual
    drafted: Callable[[Numbers], Numbers] = same
    bonus: Callable[[Numbers, Numbers], Numbers] = lambda p, _: p
    shared: bool = False
    stops: bool = True


RIGHT = Rule()


def draw(weights: Numbers, random: np.random.Generator) -> Tokens:
    """[rows] a token of each row; where nothing has weight, token 0."""
    total = weights.cumsum(axis=1)
    wanted = random.random(len(weights)) * total[:, -1]
    tokens: Tokens = np.minimum((total <= wanted[:, None]).sum(axis=1), weights.shape[1] - 1)
    return tokens


def speculate(
    rule: Rule, target: Numbers, draft: Numbers, *, rows: int, length: int, drafts: int = 2, seed: int = 0
) -> Tokens:
    """Texts after token 0.

    Args:
        rule: how drafts are checked.
        target: [vocabulary, vocabulary] what follows each token: p.
        draft: the same of the draft model: q.
        rows: how many texts.
        length: of each, in tokens.
        drafts: how many a step.
        seed: of all random numbers.

    Returns:
        [rows, length]
    """
    random = np.random.default_rng(seed)
    texts = np.zeros((rows, length + drafts + 2), np.int64)  # the first one is token 0, and a last step may go on
    ends = np.zeros(rows, np.int64)  # where each text's last token is
    while ends.min() < length:
        _step(rule, target, draft, drafts, texts, ends, random)
    return texts[:, 1 : length + 1]


def _step(
    rule: Rule,
    target: Numbers,
    draft: Numbers,
    drafts: int,
    texts: Tokens,
    ends: Tokens,
    random: np.random.Generator,
) -> None:
    """One step of the texts that are not long enough: they grow by 1 to `drafts` + 1."""
    alive = np.flatnonzero(ends < texts.shape[1] - drafts - 1)
    uniform = random.random(len(texts))
    for _ in range(drafts):
        last = texts[alive, ends[alive]]
        p, q = target[last], draft[last]
        drafted = draw(rule.drafted(q), random)
        uniform = uniform if rule.shared else random.random(len(texts))
        kept = rule.accepts(p, q, drafted, uniform[alive])
        instead = draw(rule.residual(p, q), random)
        ends[alive] += 1
        texts[alive, ends[alive]] = np.where(kept, drafted, instead)
        if rule.stops:
            alive = alive[kept]
    last = texts[alive, ends[alive]]
    ends[alive] += 1
    texts[alive, ends[alive]] = draw(rule.bonus(target[last], draft[last]), random)


def exact(target: Numbers, length: int) -> dict[tuple[int, ...], float]:
    """The probability of each text after token 0."""
    shares = {}
    for text in product(range(len(target)), repeat=length):
        steps = zip((0, *text), text, strict=False)
        shares[text] = float(np.prod([target[one, other] for one, other in steps]))
    return shares
