"""At temperature 1 the two-batch engine samples from the same distribution as plain decoding."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from integration.worker.engine.real_engine import completion
from integration.worker.minedraft.both_engines import SERVED, ask, choices, running

from worker.engine.vllm import VllmEngine, VllmOptions

SAMPLES, TOKENS = 4000, 6
#: 11 comparisons are made: equal distributions fail this test once in 900 times.
LEAST_P = 1e-4
#: Outcomes rarer than this, of all samples together, are counted as one.
RARE = 20

Texts = list[list[int]]


async def sample(engine: VllmEngine, temperature: float = 1.0) -> Texts:
    """Token ids of many answers to one prompt: the first without drafts, the others with."""
    row = completion("The license is", n=50, max_tokens=TOKENS, temperature=temperature, ignore_eos=True)
    return [choice["token_ids"] for choice in choices(await ask(engine, [row] * (SAMPLES // 50)))]


def least_p(one: Texts, other: Texts) -> float:
    """The smallest p value of the comparisons: of each token, and of each pair of neighbours."""
    windows = [slice(place, place + length) for length in (1, 2) for place in range(TOKENS - length + 1)]
    assert len(windows) == 11
    return min(p_value(*([tuple(text[window]) for text in texts] for texts in (one, other))) for window in windows)


def p_value(one: list[Hashable], other: list[Hashable]) -> float:
    """Of the chi-square test that two samples of one size come from one distribution."""
    first, second = Counter(one), Counter(other)
    common = [outcome for outcome, count in (first + second).items() if count >= RARE]
    table = torch.tensor([[counts[outcome] for outcome in common] for counts in (first, second)], dtype=torch.float64)
    rest = torch.tensor([[len(one)], [len(other)]]) - table.sum(dim=1, keepdim=True)
    table = torch.cat([table, rest], dim=1)
    table = table[:, table.sum(dim=0) > 0]
    statistic = ((table[0] - table[1]) ** 2 / table.sum(dim=0)).sum()
    freedom = torch.tensor(table.shape[1] - 1, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom / 2, statistic / 2))


@pytest.mark.full
async def test_samples_are_those_of_plain_decoding(tiny_pair: tuple[Path, Path]) -> None:
    target, draft = map(str, tiny_pair)
    options = VllmOptions(target, SERVED, draft_model=draft, num_speculative_tokens=3, max_num_seqs=64)
    async with running(options) as engine:
        plain = await sample(engine)
    async with running(replace(options, mode="psd", engine_args="--seed 1")) as engine:
        ours, cooler = await sample(engine), await sample(engine, temperature=0.9)
    print(f"least p {least_p(plain, ours):.2g}; at another temperature {least_p(plain, cooler):.2g}")
    assert least_p(plain, ours) > LEAST_P
    assert least_p(plain, cooler) < LEAST_P  # the samples are enough to tell
