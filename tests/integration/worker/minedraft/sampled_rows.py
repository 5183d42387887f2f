"""Sampled rows by the parameters that they have, and what an engine answers to thousands of each."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from exact_rows import Numbers, Text, Tree, Words, grow
from integration.worker.engine.real_engine import completion
from integration.worker.minedraft.both_engines import ask, choices
from statistics_of_rows import LEAST_EXPECTED
from tokenizers import Tokenizer

from producer.record.models import Row
from worker.engine.vllm import VllmEngine
from worker.lab.tiny import EOS, VOCABULARY

#: After it the pair's target says ` W` (0.66), then `O` (0.60), then `at`, again and again.
PROMPT: Text = (300, 310)
#: A prompt that fills a block of 32 but for two tokens, so that its answers need another one.
LONG: Text = (*range(400, 428), *PROMPT)
W, O, AT = 292, 48, 295  # noqa: E741 - what they say
#: With 3 drafts a step the first token is sampled without any, the fifth is the first that follows 3 accepted drafts.
LENGTH, DRAFTS = 6, 3
#: Answers that one row asks for.
ANSWERS = 50
#: The engine tells its raw logits, all of them.
FLAGS = f"--max-logprobs {VOCABULARY} --logprobs-mode raw_logits --structured-outputs-config.backend xgrammar"

WORDS = (" W", " WO", " WOat", " WOatat", "_O", " the", " that", "Open")
CASES: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 0.6": {"temperature": 0.6},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.7},
    "top_k and top_p, warm": {"top_k": 8, "top_p": 0.8, "temperature": 1.4},
    "min_p": {"min_p": 0.1},
    "repetition_penalty": {"repetition_penalty": 1.2},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": -1.2},
    "logit_bias": {"logit_bias": {str(W): -2, str(O): 1.5, str(AT): -1.5}},
    "bad_words": {"bad_words": ["at", "WO"]},
    "allowed_token_ids": {"allowed_token_ids": [W, O, AT, 64, 124, 125, 135, 244, 271]},
    "min_tokens": {"min_tokens": 3, "stop_token_ids": [O, AT], "ignore_eos": False},
    "choice": {"structured_outputs": {"choice": list(WORDS)}, "ignore_eos": False},
    "regex": {"structured_outputs": {"regex": "[a-c]{1,2}[O-Q]"}, "ignore_eos": False},
    "seeds": {"seed": 0},
}
#: What depends on the tokens generated so far, so also on drafts that were accepted in the same step.
REMEMBER = ("repetition_penalty", "presence_penalty", "frequency_penalty", "bad_words", "min_tokens")
#: What vLLM's own speculation refuses.
NOT_IN_SD = {"min_p", "logit_bias"}
#: What the grammars of the cases allow.
LANGUAGES = {
    "choice": frozenset(WORDS),
    "regex": frozenset("".join(way) for n in (1, 2) for way in product(*["abc"] * n, "OPQ")),
}


def body(case: str) -> dict[str, Any]:
    """The parameters of a case's rows."""
    return {"max_tokens": LENGTH, "temperature": 1.0, "ignore_eos": True, **CASES[case]}


def rows(case: str, samples: int, prompt: Text = PROMPT) -> list[Row]:
    """Rows that ask for so many answers; those with seeds for the answers of seeds 0, 1, 2 and so on."""
    whole = [body(case) for _ in range(samples // ANSWERS)]
    for first, one in enumerate(whole):
        if "seed" in one:
            one["seed"] += first * ANSWERS  # of its answers each has the seed after that of the one before
    return [completion(list(prompt), n=ANSWERS, **one) for one in whole]


def words(case: str, model: str, prompt: Text = PROMPT) -> Words:
    """What of a case is in words, in a model's tokens."""
    tokenizer = Tokenizer.from_file(str(Path(model, "tokenizer.json")))
    names = [tokenizer.id_to_token(token).replace("Ġ", " ") for token in range(VOCABULARY)]
    spelling = [name if name.isascii() and not name.startswith("<|") else "" for name in names]
    bad: list[Text] = []
    for word in CASES[case].get("bad_words", ()):
        alone, inside = (tuple(tokenizer.encode(text).ids) for text in (word, f" {word}"))
        # vLLM takes the word after a space for the same word where it has as many tokens.
        bad += [alone, inside] if len(alone) == len(inside) and alone[0] != inside[0] else [alone]
    return Words(prompt, tuple(bad), LANGUAGES.get(case), spelling, tokenizer.token_to_id(EOS))


class Target:
    """Tells the target's raw logits after any text, each once."""

    def __init__(self, engine: VllmEngine, prompt: Text = PROMPT) -> None:
        self._engine, self.prompt = engine, prompt
        self._known: dict[Text, Numbers] = {}

    async def logits(self, texts: Sequence[Text]) -> Numbers:
        """[texts, vocabulary] after the prompt and each text."""
        new = [text for text in texts if text not in self._known]
        asked = {"max_tokens": 1, "temperature": 0, "logprobs": VOCABULARY, "return_tokens_as_token_ids": True}
        answers = await ask(self._engine, [completion([*self.prompt, *text], **asked) for text in new])
        for text, choice in zip(new, choices(answers), strict=True):
            told = choice["logprobs"]["top_logprobs"][0]
            self._known[text] = np.array([told[f"token_id:{token}"] for token in range(VOCABULARY)])
        return np.array([self._known[text] for text in texts])


async def exact_trees(target: Target, model: str, cases: Iterable[str], samples: int) -> dict[str, Tree]:
    """Each case's exact distribution, in cells of which so many samples fill all but few with 20 and more."""
    least = LEAST_EXPECTED / samples
    return {
        case: await grow(target.logits, body(case), words(case, model, target.prompt), least=least) for case in cases
    }


async def sample(
    engine: VllmEngine, cases: Iterable[str], samples: int, prompt: Text = PROMPT
) -> dict[str, list[Text]]:
    """The answers to so many rows of each case, which run at once, in turn."""
    plans = {case: rows(case, samples, prompt) for case in cases}
    turns = zip_longest(*([(case, row) for row in plan] for case, plan in plans.items()))
    asked = [pair for pair in chain.from_iterable(turns) if pair]
    answers = await ask(engine, [row for _, row in asked])
    texts: dict[str, list[Text]] = {case: [] for case in plans}
    for (case, _), answer in zip(asked, answers, strict=True):
        texts[case] += [tuple(choice["token_ids"]) for choice in choices([answer])]
    return texts


def counts(tree: Tree, texts: Iterable[Text]) -> Counter[Text]:
    """How often each cell of a tree came up."""
    return Counter(map(tree.cell, texts))
