"""Prefixes in the cache, in both kinds of rank: what a hit saves the verifier must be there for the drafter, too.

Without the draft model's part all texts would be the same, and most drafts wrong.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from integration.worker.engine.real_engine import completion
from integration.worker.minedraft.both_engines import SERVED, Rings, ask, choices, counted, running
from integration.worker.minedraft.cases import BLOCK, FLAGS, GREEDY, HITS, english

from producer.record.models import Row
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.minedraft.measures import summary

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.full]  # an engine of its own


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_pair: tuple[Path, Path]) -> AsyncIterator[VllmEngine]:
    target, draft = map(str, tiny_pair)
    enough = f"{FLAGS} --num-gpu-blocks-override 512"
    options = VllmOptions(target, SERVED, "psd", draft, num_speculative_tokens=3, max_num_seqs=8, engine_args=enough)
    async with running(options) as two_batches:
        yield two_batches


class Watch:
    """Asks an engine, and tells what the cache had."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine

    async def ask(self, rows: Sequence[Row]) -> tuple[list[list[int]], float, float]:
        """The tokens of all answers, the share of the drafts that were accepted, and the tokens that were hits."""
        rings, before = Rings(self._engine), counted(HITS)
        answers = await ask(self._engine, rows)
        acceptance = summary(*rings.read()).acceptance
        assert acceptance is not None
        return [choice["token_ids"] for choice in choices(answers)], acceptance, counted(HITS) - before


def told(prompts: Sequence[list[int] | str], salt: str = "") -> list[Row]:
    """Rows; those with a salt share their prefixes with nobody who has another one."""
    body: dict[str, Any] = {"max_tokens": 60, **GREEDY, **({"cache_salt": salt} if salt else {})}
    return [completion(prompt, **body) for prompt in prompts]


async def test_drafts_are_as_good_where_the_prompt_was_in_the_cache(engine: VllmEngine) -> None:
    watch, prompts = Watch(engine), [english(number * 300, 400) for number in range(8)]
    fresh, acceptance, hits = await watch.ask(told(prompts))
    assert hits == 0
    again, with_hits, hits = await watch.ask(told(prompts))
    print(f"acceptance {acceptance:.3f}, {with_hits:.3f} with {hits:.0f} tokens from the cache")
    assert hits >= len(prompts) * 4 * BLOCK
    assert again == fresh
    assert acceptance > 0.4
    assert with_hits == pytest.approx(acceptance, abs=0.02)


async def test_drafts_are_as_good_where_an_answer_was_in_the_cache(engine: VllmEngine) -> None:
    """As in a conversation: the next prompt is the one before, its answer, and more."""
    watch = Watch(engine)
    prompts = [[40 + (number * 31 + place * 7) % 400 for place in range(2 * BLOCK)] for number in range(8)]
    answers, _, _ = await watch.ask(told(prompts))
    next_prompts = [[*prompt, *answer, 77] for prompt, answer in zip(prompts, answers, strict=True)]
    again, with_hits, hits = await watch.ask(told(next_prompts))
    fresh, acceptance, none = await watch.ask(told(next_prompts, salt="apart"))
    print(f"acceptance {acceptance:.3f}, {with_hits:.3f} with {hits:.0f} tokens from the cache")
    assert none == 0
    assert hits >= len(prompts) * 3 * BLOCK  # of its answer too, not only of its prompt
    assert again == fresh
    assert acceptance > 0.4
    assert with_hits == pytest.approx(acceptance, abs=0.02)
