"""Few rows and short ones, for a slow engine that is short of everything."""

from typing import Any

from integration.worker.engine.real_engine import completion
from integration.worker.minedraft.cases import (
    GREEDY,
    LIMITED,
    PENALIZED,
    SCHEMA,
    STOPPED,
    TRUNCATED,
    english,
    rows,
    seeded,
)

from producer.record.models import Row

CONTEXT, BLOCK, BUDGET = 256, 32, 64
#: Longer prompts are read in chunks; eight rows of the case that is preempted would need 48 blocks.
FLAGS = f"""
    --max-model-len {CONTEXT} --max-num-batched-tokens {BUDGET} --enable-prefix-caching
    --block-size {BLOCK} --num-gpu-blocks-override 30
    --structured-outputs-config.backend xgrammar --structured-outputs-config.disable_any_whitespace true
"""
SHORT: dict[str, Any] = {"max_tokens": 24}


def few(kinds: list[dict[str, Any]]) -> list[Row]:
    """One short row of each kind."""
    return [row for kind in kinds for row in rows(1, **{**SHORT, **kind})]


CASES: dict[str, list[Row]] = {
    "greedy": rows(8, max_tokens=24),
    "long prompts": [completion(english(i * 300, 420), max_tokens=12, **GREEDY) for i in range(4)],
    "one row": rows(1, max_tokens=24),
    "preempted": [completion(english(i * 97, 60), max_tokens=140, **GREEDY) for i in range(8)],
    "prefixes in the cache": [completion(english(0, 200) + english(500 + i, 20), **SHORT, **GREEDY) for i in range(4)],
    "whole prompts in the cache": [completion([40] * (BLOCK + 1), **SHORT, **GREEDY)] * 4,
    "parameters": few([*PENALIZED[::3], *LIMITED[::3]]),
    "stopped": few(STOPPED),
    "seeded": seeded([*rows(2, **SHORT), *few([*TRUNCATED, *PENALIZED[::3], *LIMITED[::3]])]),
    "logprobs": rows(2, logprobs=3, prompt_logprobs=2, **SHORT),
    "one row with a grammar": rows(1, structured_outputs={"regex": "[a-z ]{5,8}[0-9]{3}"}, max_tokens=30),
    "grammar": [
        *rows(2, structured_outputs={"regex": "[a-z ]{5,8}[0-9]{3}"}, max_tokens=30),
        *rows(2, structured_outputs={"json": SCHEMA}, ignore_eos=False, max_tokens=60, temperature=1, seed=3),
    ],
}
