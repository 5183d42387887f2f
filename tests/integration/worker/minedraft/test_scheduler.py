"""Two batches in vLLM's own scheduler, without models: what is scheduled when, and what that costs."""

import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from integration.worker.minedraft.imagined_engine import BLOCK, DRAFTS, ImaginedEngine, config_of
from lockstep import due, in_lockstep

from worker.minedraft.checks import Unfit
from worker.minedraft.scheduler import TwoBatchScheduler

PLACEHOLDERS = [-1] * DRAFTS


@pytest.fixture(scope="module")
def config(tiny_pair: tuple[Path, Path]) -> Any:
    return config_of(tiny_pair)


def two_batches(config: Any, seed: int = 0) -> ImaginedEngine:
    return ImaginedEngine(TwoBatchScheduler, config, seed)


def test_the_batches_take_turns(config: Any) -> None:
    engine = two_batches(config)
    for number in range(8):
        engine.add(f"r{number}")
    for _ in range(8):
        engine.step()
    first, second, *later = engine.calls
    assert set(first.num_scheduled_tokens) == {"r0", "r1", "r2", "r3"}
    assert set(second.num_scheduled_tokens) == {"r4", "r5", "r6", "r7"}
    assert first.scheduled_spec_decode_tokens == second.scheduled_spec_decode_tokens == {}, "prompts have no drafts"
    for number, call in enumerate(later):
        batch = (first, second)[number % 2].num_scheduled_tokens
        assert call.num_scheduled_tokens == dict.fromkeys(batch, 1 + DRAFTS)
        assert call.scheduled_spec_decode_tokens == dict.fromkeys(batch, PLACEHOLDERS)


def test_who_comes_later_joins_the_smaller_batch(config: Any) -> None:
    engine = two_batches(config)
    engine.add("r0")
    engine.step()
    engine.add("r1")
    engine.step()
    engine.add("r2")
    engine.add("r3")
    batches = [set(engine.step().num_scheduled_tokens) for _ in range(4)]
    assert batches == [{"r0", "r2"}, {"r1", "r3"}] * 2


def test_no_more_run_than_may(config: Any) -> None:
    engine = two_batches(config)
    for number in range(20):
        engine.add(f"r{number}", tokens=5)
    while engine.scheduler.has_requests():
        engine.step()
        assert len(engine.scheduler.running) <= 8
    engine.run()
    assert set(engine.generated.values()) == {5}


def test_when_one_batch_has_ended_the_other_is_shared_out(config: Any) -> None:
    engine = two_batches(config)
    for number in range(8):
        engine.add(f"r{number}")
    for _ in range(4):
        engine.step()
    for number in range(4):
        engine.abort(f"r{number}")
    calls = [set(engine.step().num_scheduled_tokens) for _ in range(6)]
    assert calls[0] == set(), "the batch whose turn it was"
    assert calls[1] == {"r4", "r5"}, "the newest wait one step"
    assert calls[2:] == [{"r6", "r7"}, {"r4", "r5"}] * 2


def test_parts_of_a_prompt_are_read_in_consecutive_steps(tiny_pair: tuple[Path, Path]) -> None:
    config = config_of(tiny_pair, engine_args="--max-num-batched-tokens 64")
    engine = two_batches(config)
    engine.add("r0", 200)
    chunks = []
    while not engine.sampling or "r0" not in engine.sampling[-1]:
        chunks.append(engine.step().num_scheduled_tokens["r0"])
    assert sum(chunks) == 200
    assert len(chunks) == -(-200 // config.scheduler_config.max_num_scheduled_tokens)
    assert engine.step().num_scheduled_tokens == {}
    assert engine.step().scheduled_spec_decode_tokens == {"r0": PLACEHOLDERS}


def test_when_some_of_a_batch_must_wait_a_prompt_is_read_on(tiny_pair: tuple[Path, Path]) -> None:
    engine = two_batches(config_of(tiny_pair, engine_args="--max-num-batched-tokens 64"))
    for number in range(8):
        engine.add(f"r{number}", 5)
    for _ in range(4):
        engine.step()
    for number in range(4, 8):
        engine.abort(f"r{number}")
    engine.add("r8", 150)
    calls = [set(engine.step().num_scheduled_tokens) for _ in range(5)]
    assert calls[0] == {"r0", "r1", "r2", "r3"}, "the smaller batch is the one to join"
    assert calls[1] == {"r8"}
    assert calls[2] == {"r0", "r1", "r8"}
    assert calls[3] == {"r2", "r3", "r8"}


def test_answers_with_a_grammar_have_no_drafts(config: Any) -> None:
    engine = two_batches(config)
    prompt = list(range(2 * BLOCK + 1))
    engine.add("r0", prompt, tokens=6)
    engine.run()
    # All but its last token are in the cache: vLLM itself would write placeholders for it.
    for name in ("r1", "r2"):
        engine.add(name, prompt, tokens=6, structured=name == "r1")
    begin = len(engine.calls)
    engine.run()
    calls = engine.calls[begin:]
    assert not any("r1" in call.scheduled_spec_decode_tokens for call in calls)
    assert {call.num_scheduled_tokens["r1"] for call in calls if "r1" in call.num_scheduled_tokens} == {1}
    assert sum("r2" in call.scheduled_spec_decode_tokens for call in calls) > 1
    assert engine.generated == {"r0": 6, "r1": 6, "r2": 6}


def test_token_ids_are_sent_only_to_whom_resumes(tiny_pair: tuple[Path, Path]) -> None:
    engine = two_batches(config_of(tiny_pair, blocks=14))
    for number in range(8):
        engine.add(f"r{number}", tokens=100)
    engine.run()
    resumed = [call.scheduled_cached_reqs for call in engine.calls if call.scheduled_cached_reqs.resumed_req_ids]
    assert resumed, "there was no preemption"
    for call in engine.calls:
        cached = call.scheduled_cached_reqs
        assert set(cached.all_token_ids) == cached.resumed_req_ids
    assert set(engine.generated.values()) == {100}


def gaps(engine: ImaginedEngine, name: str) -> Iterable[int]:
    """Calls from one in which the request samples to the next."""
    return (later - call for call, later in pairwise(n for n, names in enumerate(engine.sampling) if name in names))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_nothing_is_verified_before_its_drafts_can_be_there(
    seed: int, tiny_pair: tuple[Path, Path]
) -> None:
    """Requests of all kinds that come, end, are aborted and preempted; and what the lanes make of the calls."""
    engine = two_batches(config_of(tiny_pair, blocks=24, engine_args="--max-num-batched-tokens 96"), seed)
    chance = random.Random(seed)
    wanted = {}
    while len(wanted) < 40 or engine.scheduler.has_requests():
        if len(wanted) < 40 and chance.random() < 0.3:
            name = f"r{len(wanted)}"
            wanted[name] = chance.randint(1, 80)
            prompt = chance.choice([5, 60, 200, list(range(BLOCK + 1))])
            engine.add(name, prompt, tokens=wanted[name], structured=chance.random() < 0.2)
        if wanted and chance.random() < 0.03:
            name = chance.choice(list(wanted))
            if name in engine.scheduler.requests:
                del wanted[name], engine.generated[name]
                wanted[name] = engine.generated[name] = 0
                engine.abort(name)
        engine.step()
    engine.run()
    assert any(call.preempted_req_ids for call in engine.calls)
    for name in wanted:
        assert min(gaps(engine, name), default=2) >= 2

    run = in_lockstep(engine.calls, 1)
    assert run.filled == [due(engine.calls)] * 2
    assert run.known == [0, 0]


def test_an_engine_that_would_not_keep_two_calls_under_way_is_refused(tiny_pair: tuple[Path, Path]) -> None:
    config = config_of(tiny_pair)
    config.scheduler_config.async_scheduling = False
    with pytest.raises(Unfit, match="1 batches in flight"):
        two_batches(config)
