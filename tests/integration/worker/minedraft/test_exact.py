"""The two-batch engine answers what plain decoding answers, whatever a row asks for and whatever happens to it."""

import asyncio

import numpy as np
import pytest
from integration.worker.minedraft.both_engines import (
    Rings,
    ask,
    assert_same_logprobs,
    choices,
    counted,
    differences,
    progress,
    text,
)
from integration.worker.minedraft.cases import (
    BUDGET,
    CASES,
    CONTEXT,
    MANY,
    chunked,
    rows,
)

from producer.record.models import Answer
from worker.engine.vllm import VllmEngine
from worker.minedraft.config import DEADLINE_S
from worker.minedraft.measures import summary

pytestmark = pytest.mark.asyncio(loop_scope="module")

Answers = dict[str, list[Answer]]


@pytest.mark.parametrize("name", CASES)
async def test_answers_are_those_of_plain_decoding(engine: VllmEngine, plain: Answers, name: str) -> None:
    before = counted(CASES[name].counter)
    assert differences(plain[name], await ask(engine, CASES[name].rows)) == []
    assert counted(CASES[name].counter) > before


@pytest.mark.full
async def test_all_cases_at_once(engine: VllmEngine, plain: Answers) -> None:
    answers = await ask(engine, [row for case in CASES.values() for row in case.rows[:12]])
    assert differences([answer for of_case in plain.values() for answer in of_case[:12]], answers) == []


async def test_the_cases_are_what_they_are_called(plain: Answers) -> None:
    """Without this, a case could stop meaning anything as soon as the models' texts change."""
    for name in ("stop strings", "stop tokens", "min_tokens", "end of text", "seeded, stopped"):
        assert "stop" in {choice["finish_reason"] for choice in choices(plain[name])}
    assert "repetition" in {choice["finish_reason"] for choice in choices(plain["repetition"])}
    assert [
        row.body["prompt"] in text(choice)
        for row, choice in zip(CASES["echo"].rows, choices(plain["echo"]), strict=True)
    ] == [True, True, False, False]
    assert any("<|im_end|>" in text(choice) for choice in choices(plain["special tokens in the text"]))
    for name in (name for name in CASES if name.startswith("seeded")):
        assert len({text(choice) for choice in choices(plain[name])}) > len(plain[name]) / 2
    assert all(answer.prompt_tokens > BUDGET for name in CASES if "chunks" in name for answer in plain[name])
    full = plain["full context, preempted"]
    assert all(answer.prompt_tokens + answer.completion_tokens == CONTEXT for answer in full)
    assert len({text(choice) for choice in choices(plain["200 rows"])}) > 190


@pytest.mark.parametrize("name", ["logprobs", "seeded, logprobs"])
async def test_logprobs_are_those_of_plain_decoding(engine: VllmEngine, plain: Answers, name: str) -> None:
    ours = await ask(engine, CASES[name].rows, return_tokens_as_token_ids=True)
    assert_same_logprobs(plain[name], ours)


async def test_drafts_come_in_time_and_the_batches_are_balanced(engine: VllmEngine, rings: Rings) -> None:
    """Late drafts, or all rows in one batch, would change no text."""
    await ask(engine, MANY)
    verifier, drafter = rings.read()
    acceptance = summary(verifier, drafter).acceptance
    calls = verifier["call"] - verifier["call"][0]
    sizes = np.zeros(calls[-1] + 1)  # an empty call leaves no record
    sizes[calls] = verifier["requests"]
    apart = np.abs(np.diff(sizes)).mean()
    print(f"acceptance {acceptance:.2f}; batches of {sizes.mean():.2f} rows that differ by {apart:.2f}")
    assert acceptance > 0.4
    assert sizes.mean() > 3.5
    assert apart < 1


async def test_one_row_alone_is_drafted_for(engine: VllmEngine, rings: Rings) -> None:
    await ask(engine, rows(1, max_tokens=200))
    assert summary(*rings.read()).acceptance > 0.4


async def test_a_seed_gives_the_same_text_however_rows_are_batched(engine: VllmEngine) -> None:
    sampled = [row for seed in range(4) for row in chunked(2, temperature=0.7, seed=seed)]
    alone = [text(choice) for row in sampled for choice in choices(await ask(engine, [row]))]
    together = [text(choice) for choice in choices(await ask(engine, sampled))]
    assert together == alone
    assert len(set(alone)) == len(sampled)


async def test_aborted_rows_change_nothing_for_the_others(engine: VllmEngine, plain: Answers) -> None:
    calls = [asyncio.create_task(engine.answer(row)) for row in MANY]
    for first in range(0, 40, 2):  # two at a time, while their neighbours run on
        await progress()
        for call in calls[first : first + 2]:
            call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    left = {index: answer for index, answer in enumerate(ended) if isinstance(answer, Answer)}
    assert [text(choice) for choice in choices(left.values())] == [
        text(choice) for choice in choices(plain["200 rows"][index] for index in left)
    ]
    assert 160 <= len(left) < 190


@pytest.mark.parametrize("seconds", [2.0, pytest.param(DEADLINE_S + 5, marks=pytest.mark.full)])
async def test_a_pause_costs_nothing(engine: VllmEngine, plain: Answers, rings: Rings, seconds: float) -> None:
    """Nobody waits for a message while there is nothing to do; the longer pause is longer than one may take."""
    await asyncio.sleep(seconds)
    assert differences(plain["prompts in chunks"], await ask(engine, CASES["prompts in chunks"].rows)) == []
    assert summary(*rings.read()).acceptance > 0.4
