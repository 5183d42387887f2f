"""Whatever the strategy, and however it changes from call to call, answers are those of plain decoding."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from integration.worker.minedraft import any_choice, cases
from integration.worker.minedraft.both_engines import Rings, ask, counted, differences, running
from integration.worker.minedraft.cases import MANY, Case, rows

from producer.record.models import Answer
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.minedraft.classes import RANKS, Ranks
from worker.strategies.seam import Strategy, Way

#: A test starts an engine, and the first one what plain decoding answers.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

Answers = dict[str, list[Answer]]
DRAFTS = 3
NAMES = (
    "prompts in chunks",
    "full context, preempted",
    "whole prompts in the cache",
    "stop strings",
    "one token",
    "two tokens",
    "structure",
    "seeded",
    "seeded, of every kind, prompts in chunks",
    "one row",
)
CASES = {"100 rows": Case(MANY[:100]), **{name: cases.CASES[name] for name in NAMES}}


class Engine(NamedTuple):
    """How an engine differs from one with two batches and the draft model's drafts.

    Attributes:
        strategy: of it.
        ranks: whose classes it has.
    """

    strategy: Strategy
    ranks: Ranks = RANKS


ENGINES = {
    "any choice": Engine(Strategy(), any_choice.RANKS),
    "pearl": Engine(Strategy(mode="pearl")),
    "pearl, tetris": Engine(Strategy(mode="pearl", admission="tetris", extra=2)),
    "tetris": Engine(Strategy(admission="tetris", extra=2)),
    "confidence": Engine(Strategy(admission="confidence")),
    "adaptive": Engine(Strategy(length="adaptive")),
    "n-grams": Engine(Strategy(source="ngram")),
    "suffixes": Engine(Strategy(source="suffix")),
    "auto": Engine(Strategy(mode="auto", source="mixed", length="adaptive", admission="confidence")),
}
#: All that can change from call to call, and from row to row.
EVERYTHING = Engine(Strategy(source="mixed", length="adaptive", admission="tetris", extra=1), any_choice.RANKS)


def made(options: dict[str, Any], engine: Engine, **more: Any) -> VllmOptions:
    return VllmOptions(**{**options, "mode": "psd", "strategy": engine.strategy, "ranks": engine.ranks, **more})


async def check_answers(engine: VllmEngine, plain: Answers) -> None:
    for name, case in CASES.items():
        before = counted(case.counter)
        assert differences(plain[name], await ask(engine, case.rows)) == [], name
        assert counted(case.counter) > before


async def test_answers_are_those_of_plain_decoding_when_everything_changes_at_any_time(
    options: dict[str, Any], plain: Answers
) -> None:
    async with running(made(options, EVERYTHING)) as engine:
        rings = Rings(engine)
        await check_answers(engine, plain)
        verifier, drafter = rings.read()
    ways, asked = (np.unique(verifier[field]).tolist() for field in ("way", "asked"))
    assert (ways, asked) == ([*Way], [0, 1, DRAFTS])
    assert len(drafter) > 0.95 * len(verifier)
    accepted = verifier["accepted"].sum() / verifier["drafted"].sum()
    print(f"{len(verifier)} calls, {verifier['drafted'].sum()} drafts verified, {accepted:.2f} of them accepted")
    assert accepted > 0.3


async def test_a_draft_model_that_is_the_target_is_always_right_whatever_was_chosen_before(
    options: dict[str, Any], plain: Answers
) -> None:
    """So the drafter misses no token of a row at any transition, and guesses the token after its drafts ahead."""
    same = made(options, ENGINES["any choice"], draft_model=options["model"])
    async with running(same) as engine:
        for name in ("100 rows", "prompts in chunks", "full context, preempted"):
            rings = Rings(engine)
            assert differences(plain[name], await ask(engine, CASES[name].rows)) == []
            verifier, _ = rings.read()
            drafted, accepted = verifier["drafted"].sum(), verifier["accepted"].sum()
            ahead = verifier[1:][(verifier["way"][1:] == Way.AHEAD) & (verifier["way"][:-1] == Way.AHEAD)]
            print(f"{name}: {accepted} of {drafted} drafts accepted, {_share(ahead):.2f} of places ahead had one")
            assert accepted > 0.995 * drafted
            assert name != "100 rows" or _share(ahead) > 0.8  # prompts have none


def _share(ahead: Any) -> float:
    """Of the drafts that rows may have had in calls that were drafted for ahead, how many they had."""
    places = ahead["requests"] * np.maximum(ahead["asked"] - 1, 0)
    return float(ahead["drafted"].sum() / places.sum())


@pytest.mark.full
@pytest.mark.parametrize("name", ENGINES)
async def test_answers_are_those_of_plain_decoding(options: dict[str, Any], plain: Answers, name: str) -> None:
    async with running(made(options, ENGINES[name])) as engine:
        rings = Rings(engine)
        await check_answers(engine, plain)
        await ask(engine, rows(1, max_tokens=200))
        verifier, _ = rings.read()
    print(f"{name}: {verifier['accepted'].sum()} of {verifier['drafted'].sum()} drafts accepted")
    assert verifier["accepted"].sum() > 0
