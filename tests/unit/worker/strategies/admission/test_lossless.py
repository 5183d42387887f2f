"""Two rows of a vocabulary of three, all cases: what is verified by each rule does not change any distribution.

Drafts are drawn from q and stay with probability min(1, p/q), else the token is drawn from max(p - q, 0) (Leviathan et
al., arXiv 2211.17192). A rule that looks at what was drawn, as TETRIS's paper does, does change it.
"""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.strategies.admission import make
from worker.strategies.costs import Costs
from worker.strategies.seam import Chances, Counts, Drafted, Strategy, Way

VOCABULARY, DRAFTS, TOKENS, ROWS = 3, 2, 3, 2
#: [tokens so far, ...] of a row: what may come next.
Model = dict[tuple[int, ...], NDArray[np.float64]]
Admit = Callable[[Chances], Counts]
#: The chances of a row's drafts, from the proposals that they were drawn from, and the drafts.
Sure = Callable[[Model, Sequence[int]], list[float]]


def model(random: np.random.Generator) -> Model:
    prefixes = [prefix for length in range(TOKENS) for prefix in product(range(VOCABULARY), repeat=length)]
    return {prefix: random.dirichlet([0.7] * VOCABULARY) for prefix in prefixes}


def texts(target: Model, draft: Model, drafted: Sequence[int], verified: int) -> NDArray[np.float64]:
    """[vocabulary] * TOKENS: the distribution of a row's text, its first tokens verified drafts, the rest plain."""
    found = np.zeros((VOCABULARY,) * TOKENS)
    for text in np.ndindex(found.shape):
        chance = 1.0
        for place, token in enumerate(text):
            prefix = text[:place]
            p = target[prefix]
            if place < verified and prefix == tuple(drafted[:place]):
                q = draft[prefix]
                guess = drafted[place]
                stays = min(1.0, p[guess] / q[guess])
                rest = np.maximum(p - q, 0)
                other = rest[token] / rest.sum() if rest.sum() else 0.0
                chance *= stays * (token == guess) + (1 - stays) * other
            else:
                chance *= p[token]
        found[text] = chance
    return found


def plain(target: Model) -> NDArray[np.float64]:
    return texts(target, target, (), 0)


def largest(draft: Model, drafted: Sequence[int]) -> list[float]:
    """What is known before each draft is drawn."""
    return [draft[tuple(drafted[:place])].max() for place in range(DRAFTS)]


def drawn(draft: Model, drafted: Sequence[int]) -> list[float]:
    """The paper's: what each draft was drawn with."""
    return [draft[tuple(drafted[:place])][drafted[place]] for place in range(DRAFTS)]


def together(targets: Sequence[Model], drafts: Sequence[Model], admit: Admit, sure: Sure) -> NDArray[np.float64]:
    """The distribution of the texts of both rows together."""
    found = np.zeros((VOCABULARY,) * TOKENS * ROWS)
    for drafted in product(product(range(VOCABULARY), repeat=DRAFTS), repeat=ROWS):
        chance = 1.0
        for draft, ids in zip(drafts, drafted, strict=True):
            chance *= float(np.prod([draft[ids[:place]][ids[place]] for place in range(DRAFTS)]))
        counts = admit(np.array([sure(draft, ids) for draft, ids in zip(drafts, drafted, strict=True)]))
        rows = zip(targets, drafts, drafted, counts.tolist(), strict=True)
        first, second = (texts(target, draft, ids, count) for target, draft, ids, count in rows)
        found += chance * np.multiply.outer(first, second)
    return found


def tetris(chances: Chances) -> Counts:
    return make(Strategy(admission="tetris", extra=1), DRAFTS, Costs()).admit(Drafted(chances, Way.TWO))


def confidence(chances: Chances) -> Counts:
    costs = Costs()
    for tokens in range(1, 9):
        costs.verified(ROWS, tokens, 2.0 + max(3.0, 1.1 * tokens))
    return make(Strategy(admission="confidence"), DRAFTS, costs).admit(Drafted(chances, Way.TWO))


def shift(seed: int, admit: Admit, sure: Sure) -> float:
    """By how much the distribution of both texts differs from that of plain decoding (total variation)."""
    random = np.random.default_rng(seed)
    targets, drafts = [model(random) for _ in range(ROWS)], [model(random) for _ in range(ROWS)]
    expected = np.multiply.outer(*(plain(target) for target in targets))
    return float(np.abs(together(targets, drafts, admit, sure) - expected).sum() / 2)


@pytest.mark.parametrize("admit", [tetris, confidence])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_before_a_draft_is_drawn_may_decide_about_it(admit: Admit, seed: int) -> None:
    assert shift(seed, admit, largest) < 1e-12


@pytest.mark.parametrize("admit", [tetris, confidence])
def test_what_was_drawn_may_not(admit: Admit) -> None:
    assert max(shift(seed, admit, drawn) for seed in range(4)) > 0.01


def test_these_rules_do_choose() -> None:
    """Else nothing was tested."""
    sure, unsure = [0.95, 0.9], [0.4, 0.4]
    for admit in (tetris, confidence):
        assert admit(np.array([sure, unsure])).tolist() == [2, 0]
        assert admit(np.array([unsure, sure])).tolist() == [0, 2]
