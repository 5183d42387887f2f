"""Rows of every kind, by what is special about them, for engines that are short of everything: see `FLAGS`."""

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
    "structure": Case(rows(structured_outputs={"regex": "[a-z ]{20,30}[0-9]{3}"}, max_tokens=100)),
    "one row": Case(rows(1)),
}
