"""On vLLM's V2 runner, too, sampled rows have the distribution that their parameters say, whatever the drafts."""

from dataclasses import replace
from typing import Any

import pytest
from integration.worker.minedraft.both_engines import drafted, running
from integration.worker.minedraft.sampled_rows import FLAGS, Target, counts, exact_trees, sample
from statistics_of_rows import fit

from worker.engine.vllm import VllmOptions

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800)]

CASES = ["temperature 1", "top_k and top_p, warm", "min_p", "repetition_penalty", "choice"]
SAMPLES = 400


async def test_rows_without_a_seed_are_sampled_exactly(options: dict[str, Any], stock: object) -> None:
    """All kinds at once: their answers against the exact distribution, from the target's raw logits."""
    del stock  # other engines of this session come first
    made = replace(VllmOptions(**options, mode="psd"), engine_args=FLAGS, max_num_seqs=64)
    async with running(made) as engine:
        trees = await exact_trees(Target(engine), made.model, CASES, SAMPLES)
        before = drafted()
        texts = await sample(engine, CASES, SAMPLES)
        assert drafted(before)[1] > SAMPLES
    found = {case: fit(counts(trees[case], texts[case]), trees[case].cells) for case in CASES}
    print(found)
    assert all(found.values()), found
