"""What a sampled row must be distributed as, from the target's raw logits: each parameter written out in numpy.

A row is a body for vLLM's completions endpoint. Nothing of vLLM is used here.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Text = tuple[int, ...]  # token ids
#: The last place of a cell that stands for all tokens that have no cell of their own.
OTHER = -1

#: Gives the logits after each of several texts (without the prompt): [texts, vocabulary].
Logits = Callable[[Sequence[Text]], Awaitable[Numbers]]


@dataclass(frozen=True, slots=True)
class Words:
    """What a row says in text, as tokens.

    Attributes:
        prompt: its tokens.
        bad: what must not be said, as token ids.
        language: all that the grammar allows, as strings; None: anything.
        spelling: what each token says, by its id.
        end: the token that ends a text.
    """

    prompt: Text
    bad: tuple[Text, ...] = ()
    language: frozenset[str] | None = None
    spelling: Sequence[str] = ()
    end: int = 1


def probabilities(logits: Numbers, body: Mapping[str, Any], words: Words, text: Text) -> Numbers:
    """[vocabulary] of the token that follows.

    Args:
        logits: [vocabulary], raw.
        body: the row's parameters.
        words: what of them is in words.
        text: the tokens generated so far.
    """
    logits = _without(logits.astype(float), body, words, text)
    for token, bias in body.get("logit_bias", {}).items():
        logits[int(token)] += bias
    logits = _penalised(logits, body, words.prompt, text) / body.get("temperature", 1.0)
    logits[_softmax(logits) < body.get("min_p", 0.0) * _softmax(logits).max()] = -np.inf
    if top_k := body.get("top_k", 0):
        logits[logits < np.sort(logits)[-top_k]] = -np.inf
    return _nucleus(_softmax(logits), body.get("top_p", 1.0))


def _without(logits: Numbers, body: Mapping[str, Any], words: Words, text: Text) -> Numbers:
    """The logits without the tokens that are not allowed here."""
    allowed = np.ones(len(logits), bool)
    if "allowed_token_ids" in body:
        allowed[:] = False
        allowed[body["allowed_token_ids"]] = True
    for word in words.bad:
        if text[len(text) - len(word) + 1 :] == word[:-1] and len(text) >= len(word) - 1:
            allowed[word[-1]] = False
    if len(text) < body.get("min_tokens", 0):
        allowed[[words.end, *body.get("stop_token_ids", ())]] = False
    if words.language is not None:
        said = "".join(words.spelling[token] for token in text)
        ways = {whole[len(said) :] for whole in words.language if whole.startswith(said)}
        for token, spelling in enumerate(words.spelling):
            allowed[token] &= bool(spelling) and any(way.startswith(spelling) for way in ways)
        allowed[words.end] = "" in ways
    return np.where(allowed, logits, -np.inf)


def _penalised(logits: Numbers, body: Mapping[str, Any], prompt: Text, text: Text) -> Numbers:
    counts = np.bincount(np.array(text, int), minlength=len(logits))
    seen = counts > 0
    seen_anywhere = seen.copy()
    seen_anywhere[list(prompt)] = True
    repetition = body.get("repetition_penalty", 1.0)
    weaker = np.where(logits > 0, logits / repetition, logits * repetition)
    logits = np.where(seen_anywhere, weaker, logits)
    logits -= body.get("frequency_penalty", 0.0) * counts + body.get("presence_penalty", 0.0) * seen
    return logits


def _nucleus(probabilities: Numbers, top_p: float) -> Numbers:
    """The likeliest tokens that together have a probability of `top_p`."""
    if top_p >= 1:
        return probabilities
    order = np.argsort(-probabilities, kind="stable")
    before = np.cumsum(probabilities[order]) - probabilities[order]
    kept = np.zeros_like(probabilities)
    chosen = order[before < top_p]
    kept[chosen] = probabilities[chosen] / probabilities[chosen].sum()
    return kept


def _softmax(logits: Numbers) -> Numbers:
    weights: Numbers = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights


@dataclass(slots=True)
class Tree:
    """A row's answers in cells: their first tokens, as far as these are likely enough to be counted.

    Attributes:
        cells: the probability of each cell. A cell is a text; where its last place is `OTHER`, it stands for all other
            tokens there.
        branches: the tokens that are told apart after each text that goes on.
    """

    cells: dict[Text, float] = field(default_factory=dict)
    branches: dict[Text, Collection[int]] = field(default_factory=dict)

    def cell(self, text: Text) -> Text:
        """The cell of an answer."""
        for length in range(len(text) + 1):
            known = self.branches.get(text[:length])
            if known is None:
                return text[:length]
            if length < len(text) and text[length] not in known:
                return (*text[:length], OTHER)
        return text  # it ends where it should go on, which no cell expects


async def grow(logits: Logits, body: Mapping[str, Any], words: Words, *, least: float) -> Tree:
    """Compute the distribution of a row's whole answers.

    Args:
        logits: of the target.
        body: the row.
        words: what of it is in words.
        least: answers that are rarer are counted together.
    """
    tree, level = Tree(), dict[Text, float]({(): 1.0})
    ends = set(body.get("stop_token_ids", ())) | (set() if body.get("ignore_eos") else {words.end})
    for _ in range(body["max_tokens"]):
        texts = [text for text in level if not text or text[-1] not in ends]
        tree.cells |= {text: share for text, share in level.items() if text not in texts}
        following: dict[Text, float] = {}
        for text, row in zip(texts, await logits(texts), strict=True) if texts else ():
            shares = probabilities(row, body, words, text) * level[text]
            likely = [int(token) for token in np.flatnonzero(shares >= least)]
            if not likely:
                tree.cells[text] = level[text]
                continue
            tree.branches[text] = likely
            following |= {(*text, token): float(shares[token]) for token in likely}
            rest = np.delete(shares, likely)
            tree.cells[(*text, OTHER)] = float(rest.sum()) if rest.any() else 0.0
        level = following
    tree.cells |= level
    return tree


async def weigh(
    tree: Tree, logits: Logits, body: Mapping[str, Any], words: Words, *, memory: int | None = None
) -> dict[Text, float]:
    """The probabilities that another row gives to a tree's cells, for answers of the same lengths.

    Args:
        tree: its cells.
        logits: of the target.
        body: the other row.
        words: what of it is in words.
        memory: how many tokens of an answer its parameters know of, as if they had missed the others; None: all.
    """
    shares: dict[Text, float] = {(): 1.0}
    texts = sorted(tree.branches, key=len)
    for text, row in zip(texts, await logits(texts), strict=True):
        following = probabilities(row, body, words, text[:memory]) * shares[text]
        shares |= {(*text, token): float(following[token]) for token in tree.branches[text]}
        shares[(*text, OTHER)] = float(np.delete(following, list(tree.branches[text])).sum())
    return {cell: shares[cell] for cell in tree.cells}
