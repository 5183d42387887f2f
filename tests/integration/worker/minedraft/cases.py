"""Rows of every kind, by what is special about them, for engines that are short of everything: see `FLAGS`."""

from dataclasses import replace
from typing import Any, NamedTuple

from integration.worker.engine.real_engine import chat, completion

from producer.record.models import Row
from worker.lab.tiny import TEXT

CONTEXT, BLOCK, BUDGET = 512, 32, 128
#: Longer prompts are read in chunks; eight rows that fill the context would need 128 blocks, so some are preempted.
FLAGS = f"""
    --max-model-len {CONTEXT} --max-num-batched-tokens {BUDGET} --enable-prefix-caching
    --block-size {BLOCK} --num-gpu-blocks-override 64
    --structured-outputs-config.backend xgrammar --structured-outputs-config.disable_any_whitespace true
"""
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
#: With one candidate, sampling cannot but take the likeliest token, on the way of sampled rows.
ONE_CANDIDATE: dict[str, Any] = {"temperature": 0.7, "top_k": 1}
STOPS = list(range(40, 500, 9))
#: A prompt that vLLM, once it is in the cache but for one token, schedules as if it had drafts.
ONE_MORE = [40] * (2 * BLOCK + 1)
#: vLLM's counters.
GENERATED, PREEMPTED, HITS = (
    "vllm:generation_tokens_total",
    "vllm:num_preemptions_total",
    "vllm:prefix_cache_hits_total",
)
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "word": {"type": "string", "pattern": "^[a-z]{5,9}$"}},
    "required": ["ok", "word"],
    "additionalProperties": False,
}
ENGLISH = TEXT.read_text(encoding="utf-8")


class Case(NamedTuple):
    """Rows, and the counter by which one sees that what they are here for has happened."""

    rows: list[Row]
    counter: str = GENERATED


def english(start: int, length: int) -> str:
    """A piece of English, in characters; about two are a token."""
    return ENGLISH[start : start + length]


def rows(count: int = 6, **body: Any) -> list[Row]:
    return [completion(english(i * 97, 60 + i * 20), **{"max_tokens": 40, **GREEDY, **body}) for i in range(count)]


def chunked(count: int = 6, **body: Any) -> list[Row]:
    """Rows with prompts above `BUDGET`."""
    return [completion(english(i * 300, 600), **{"max_tokens": 20, **GREEDY, **body}) for i in range(count)]


def seeded(plain: list[Row]) -> list[Row]:
    """The rows, sampled; each has a seed of its own."""
    return [
        replace(row, body={**row.body, "temperature": 1, "seed": seed})
        for seed, row in enumerate(plain, start=len(plain))
    ]


#: What decides how a token is drawn, by kind.
TRUNCATED: list[dict[str, Any]] = [
    {"top_p": 0.8},
    {"top_k": 20},
    {"min_p": 0.05},
    {"top_p": 0.95, "top_k": 100, "min_p": 0.01},
]
PENALIZED: list[dict[str, Any]] = [
    {"repetition_penalty": 1.3},
    {"presence_penalty": 1.5},
    {"frequency_penalty": -0.5},
    {"repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.5},
]
LIMITED: list[dict[str, Any]] = [
    {"logit_bias": {str(token): 3 for token in range(40, 60)} | {"61": -100}},
    {"bad_words": ["the", "er", " a"]},
    {"allowed_token_ids": list(range(40, 80))},
    {"logit_bias": {"50": 2}, "bad_words": ["or"], "min_p": 0.02, "presence_penalty": 0.5, "top_k": 200},
]
STOPPED: list[dict[str, Any]] = [
    {"stop": ["er", " the", "tion"]},
    {"stop": ["e", "o"], "include_stop_str_in_output": True, "min_tokens": 8},
    {"stop_token_ids": STOPS},
    {"stop_token_ids": STOPS, "min_tokens": 20},
    {"ignore_eos": False, "allowed_token_ids": [1, *range(40, 60)]},
    {"ignore_eos": False, "allowed_token_ids": [1, *range(40, 60)], "min_tokens": 10, "skip_special_tokens": False},
]


def each(kinds: list[dict[str, Any]], count: int = 2) -> list[Row]:
    """So many rows of every kind."""
    return [row for kind in kinds for row in rows(count, **kind)]


#: Some kinds of each list.
EVERY_KIND = [*TRUNCATED[2:], *PENALIZED[::3], *LIMITED[::3], *STOPPED[::3]]
REPETITION = {"max_pattern_size": 4, "min_pattern_size": 1, "min_count": 5}


def beams(start: int) -> Row:
    """A row whose three likeliest answers are looked for. Tests add `logprobs`, which beam search does not go with."""
    return completion(english(start * 97, 60), use_beam_search=True, n=3, max_tokens=6, ignore_eos=True, logprobs=None)


#: Prompts of 10 to 150 tokens, every other one a chat, answered in 8 to 40 tokens.
MANY = [
    (chat, completion)[i % 2](english(i * 41, 20 + i * 53 % 280), max_tokens=8 + i * 7 % 33, **GREEDY)
    for i in range(200)
]

CASES = {
    "200 rows": Case(MANY),
    "prompts in chunks": Case(chunked(16)),
    "full context, preempted": Case(rows(8, max_tokens=None), PREEMPTED),
    "prefixes in the cache": Case(
        [completion(english(0, 400) + english(500 + i, 40), max_tokens=20, **GREEDY) for i in range(12)], HITS
    ),
    "whole prompts in the cache": Case([completion(ONE_MORE, max_tokens=20, **GREEDY)] * 12, HITS),
    "prompts of one token": Case([completion([i], max_tokens=20, **GREEDY) for i in range(40, 46)]),
    "prompts as token ids": Case([completion(list(range(i, i + 30)), max_tokens=20, **GREEDY) for i in range(40, 46)]),
    "stop strings": Case(rows(stop=["er", " the", "tion"]) + rows(stop="or", include_stop_str_in_output=True)),
    "stop tokens": Case(rows(stop_token_ids=STOPS)),
    "min_tokens": Case(rows(stop_token_ids=STOPS, min_tokens=20)),
    "end of text": Case(rows(ignore_eos=False, allowed_token_ids=[1, *range(40, 60)])),
    "one token": Case(rows(max_tokens=1)),
    "two tokens": Case(rows(max_tokens=2)),
    "repetition_penalty": Case(rows(repetition_penalty=1.3)),
    "presence_penalty": Case(rows(presence_penalty=1.5)),
    "frequency_penalty": Case(rows(frequency_penalty=1.5)),
    "bad_words": Case(rows(bad_words=["the", "er"])),
    "allowed_token_ids": Case(rows(allowed_token_ids=list(range(40, 80)))),
    "logprobs": Case(rows(logprobs=3, prompt_logprobs=2)),
    "sampled from one candidate": Case(rows(**ONE_CANDIDATE)),
    "seeded, in chunks": Case(chunked(seed=7, **ONE_CANDIDATE)),
    "three answers a row": Case(rows(n=3, **ONE_CANDIDATE)),
    # `test_structure.py` has more, in the full tier.
    "structure": Case(
        rows(structured_outputs={"regex": "[a-z ]{20,30}[0-9]{3}"}, max_tokens=100)
        + rows(3, structured_outputs={"json": SCHEMA}, ignore_eos=False, max_tokens=100, temperature=1, seed=3)
        + rows(2, structured_outputs={"choice": ["yes", "neither the one nor the other"]}, ignore_eos=False)
        + rows(2, structured_outputs={"grammar": 'root ::= ("yes" | "no") ("," root)?'}, temperature=1, seed=4)
    ),
    "logit_bias and min_p": Case(rows(logit_bias={"40": 2, "41": -100}, min_p=0.1)),
    "special tokens in the text": Case(rows(allowed_token_ids=[1, *range(40, 44)], skip_special_tokens=False)),
    # With token ids vLLM leaves the prompt out of the text.
    "echo": Case(rows(2, echo=True, return_token_ids=False) + rows(2, echo=True, logprobs=2, max_tokens=5)),
    "logprobs of some tokens": Case(rows(2, logprobs=0, logprob_token_ids=[40, 41, 300])),
    "repetition": Case(rows(allowed_token_ids=[40, 41], repetition_detection=REPETITION)),
    "beam search": Case([beams(i) for i in range(3)]),
    "seeded": Case(seeded(rows())),
    "seeded, truncated": Case(seeded(each(TRUNCATED))),
    "seeded, penalized": Case(seeded(each(PENALIZED))),
    "seeded, limited": Case(seeded(each(LIMITED))),
    "seeded, stopped": Case(seeded(each(STOPPED))),
    "seeded, three answers a row": Case(seeded(rows(4, n=3, top_p=0.9))),
    "seeded, logprobs": Case(seeded(rows(4, logprobs=3, prompt_logprobs=2, min_p=0.02))),
    "seeded, of every kind, prompts in chunks": Case(
        seeded([row for kind in EVERY_KIND for row in chunked(1, **kind, n=2)])
    ),
    "seeded, of every kind, full context, preempted": Case(
        seeded([rows(1, max_tokens=None, **kind)[0] for kind in [*TRUNCATED, *PENALIZED, *LIMITED[:2]]]), PREEMPTED
    ),
    "one row": Case(rows(1)),
}
