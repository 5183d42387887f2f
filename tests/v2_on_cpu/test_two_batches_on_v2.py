"""The two-batch engine on vLLM's V2 runner, host link, ranks in processes of their own: tokens, and drafts, are right.

Late or lost drafts change no token, only how many are accepted; so that is looked at, too.
"""

import asyncio
from pathlib import Path

import numpy as np
import psutil
import pytest
from integration.worker.minedraft.both_engines import (
    Rings,
    ask,
    assert_same_logprobs,
    choices,
    counted,
    differences,
    drafted,
    progress,
    ranks,
    text,
)
from integration.worker.minedraft.cases import GENERATED, HITS, PREEMPTED, rows
from v2_on_cpu.cases import BUDGET, CASES

from producer.record.models import Answer
from worker.engine.vllm import VllmEngine
from worker.minedraft import names
from worker.minedraft.measures import summary
from worker.minedraft.presence import Presence, State
from worker.minedraft.stages import Records

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

Answers = dict[str, list[Answer]]
#: A drafter imports vLLM and loads its model in this time (seconds).
START_S = 240.0


@pytest.mark.parametrize("name", ["greedy", "long prompts"])
async def test_as_many_drafts_are_accepted_as_in_vllms_own_speculation(
    engine: VllmEngine, plain: Answers, stock: dict[str, tuple[float, float]], name: str
) -> None:
    before = drafted()
    assert differences(plain[name], await ask(engine, CASES[name])) == []
    assert drafted(before) == stock[name]
    assert stock[name][1] > 0.4 * stock[name][0] > 0


@pytest.mark.parametrize("name", [name for name in CASES if name not in {"greedy", "long prompts"}])
async def test_answers_are_those_of_plain_decoding(engine: VllmEngine, plain: Answers, name: str) -> None:
    watched = {"preempted": PREEMPTED, "prefixes in the cache": HITS, "whole prompts in the cache": HITS}
    counter = watched.get(name, GENERATED)
    before = counted(counter)
    assert differences(plain[name], await ask(engine, CASES[name])) == []
    assert counted(counter) > before


async def test_logprobs_are_those_of_plain_decoding(engine: VllmEngine, plain: Answers) -> None:
    assert_same_logprobs(plain["logprobs"], await ask(engine, CASES["logprobs"], return_tokens_as_token_ids=True))


async def test_the_cases_are_what_they_are_called(plain: Answers) -> None:
    assert all(answer.prompt_tokens > 2 * BUDGET for answer in plain["long prompts"])
    assert {"stop"} <= {choice["finish_reason"] for choice in choices(plain["stopped"])}
    assert len({text(choice) for choice in choices(plain["seeded"])}) == len(plain["seeded"])


async def test_two_batches_take_turns(engine: VllmEngine, rings: Rings) -> None:
    await ask(engine, rows(8, max_tokens=48))
    verifier, drafter = await _all_of(rings)
    assert np.median(verifier["requests"][verifier["prefill"] == 0]) == 4
    assert set(np.diff(verifier["call"])) <= {1, 2}
    found = summary(verifier, drafter)
    assert found.acceptance is not None
    assert found.acceptance > 0.5
    assert found.hidden_share is not None
    assert found.hidden_share > 0.2  # of two cores that share everything with the engine


async def _all_of(rings: Rings) -> tuple[Records, Records]:
    """What both ranks recorded; the drafter's last calls end after their rows have been answered."""
    verifier, drafter = rings.read()
    async with asyncio.timeout(20):
        while not set(verifier["call"]) <= set(drafter["call"]):
            await asyncio.sleep(0.05)
            drafter = np.concatenate([drafter, rings.read()[1]])
    return verifier, drafter


async def test_a_row_with_a_grammar_that_is_alone_has_no_drafts(engine: VllmEngine) -> None:
    """There would be no masks for them in time, and all would be rejected."""
    before = drafted()
    await ask(engine, CASES["one row with a grammar"])
    assert drafted(before) == (0, 0)


async def test_drafts_of_rows_with_a_grammar_are_accepted_where_it_leaves_a_choice(engine: VllmEngine) -> None:
    before = drafted()
    await ask(engine, rows(6, structured_outputs={"regex": "[^0-9]{1,200}"}, max_tokens=24))
    verified, accepted = drafted(before)
    assert accepted > 0.2 * verified > 0


async def test_aborted_rows_change_nothing_for_the_others(engine: VllmEngine, plain: Answers) -> None:
    """Neither for their neighbours, nor for those that get their slots while their drafts are under way."""
    aborted = [asyncio.create_task(engine.answer(row)) for row in CASES["preempted"][:4]]
    kept = asyncio.create_task(ask(engine, CASES["greedy"][:4]))
    await progress(12)
    for call in aborted:
        call.cancel()
    later = await ask(engine, CASES["greedy"][4:])
    await asyncio.gather(*aborted, return_exceptions=True)
    assert differences(plain["greedy"], [*await kept, *later]) == []


async def test_a_drafter_that_is_killed_takes_no_row_with_it(
    engine: VllmEngine, plain: Answers, folder: Path, stock: dict[str, tuple[float, float]]
) -> None:
    running = asyncio.create_task(ask(engine, CASES["greedy"]))
    await progress(16)
    killed = ranks()[names.DRAFTER]
    killed.kill()
    assert differences(plain["greedy"], await running) == []
    presence = Presence.seen_in(folder)
    assert presence is not None
    assert presence.losses == 1
    async with asyncio.timeout(START_S):
        while presence.state is not State.WAITING:
            await asyncio.sleep(0.1)
    assert differences(plain["greedy"], await ask(engine, CASES["greedy"])) == []
    assert presence.joins == 1
    assert ranks()[names.DRAFTER].pid != killed.pid
    before = drafted()
    assert differences(plain["greedy"], await ask(engine, CASES["greedy"])) == []
    assert drafted(before) == stock["greedy"]


async def test_nothing_is_left_of_it(engine: VllmEngine) -> None:
    """Comes last: it ends the engine."""
    processes = list(psutil.Process().children(recursive=True))
    await engine.close()
    gone, alive = psutil.wait_procs([one for one in processes if "minedraft" in _name(one)], timeout=20)
    assert not alive
    assert gone


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return "minedraft: ended"
