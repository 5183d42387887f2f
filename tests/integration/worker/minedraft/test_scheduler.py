"""Two batches in vLLM's own scheduler, without models: what is scheduled when, and what that costs."""

import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from integration.worker.minedraft.imagined_engine import (
    BLOCK,
    DRAFTS,
    PLACEHOLDERS,
    ImaginedEngine,
    config_of,
    two_batches,
)
from lockstep import due, in_lockstep
from vllm.v1.core.sched.interface import PauseState

from worker.minedraft.checks import Unfit
from worker.minedraft.lanes import CallNumbers
from worker.minedraft.presence import State


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
    calls = [set(engine.step().num_scheduled_tokens) for _ in range(4)]
    assert calls == [{"r4", "r5"}, {"r6", "r7"}] * 2, "the newest wait one step, and no call is empty"


def test_parts_of_a_prompt_are_read_in_consecutive_steps(tiny_pair: tuple[Path, Path]) -> None:
    config = config_of(tiny_pair, engine_args="--max-num-batched-tokens 64")
    engine = two_batches(config)
    engine.add("r0", 200)
    chunks = []
    while not engine.sampling or "r0" not in engine.sampling[-1]:
        chunks.append(engine.step().num_scheduled_tokens["r0"])
    assert sum(chunks) == 200
    assert len(chunks) == -(-200 // config.scheduler_config.max_num_scheduled_tokens)
    for _ in range(3):  # alone, and without empty calls between
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
    calls = [set(engine.step().num_scheduled_tokens) for _ in range(7)]
    assert calls[0] == {"r0", "r1", "r2"}, "one moves,"
    assert calls[1] == {"r3", "r8"}, "and the smaller batch is the one to join;"
    assert calls[2:4] == [{"r0", "r1", "r8"}, {"r2", "r3", "r8"}], "a prompt is read on while another one moves"
    assert calls[4:] == [{"r0", "r1"}, {"r2", "r3", "r8"}, {"r0", "r1"}]


def test_no_call_is_empty_while_requests_run(tiny_pair: tuple[Path, Path]) -> None:
    engine = two_batches(config_of(tiny_pair))
    for number in range(5):
        engine.add(f"r{number}", tokens=10 + 20 * number)
    engine.run()
    *busy, last = engine.calls
    assert all(call.num_scheduled_tokens for call in busy)
    assert last.num_scheduled_tokens == {}
    assert last.finished_req_ids, "it tells the ranks of those that ended"


def test_without_a_drafter_all_go_on_in_one_batch_and_without_drafts(config: Any) -> None:
    engine = two_batches(config)
    for number in range(8):
        engine.add(f"r{number}", tokens=30)
    for _ in range(4):
        engine.step()
    engine.scheduler._presence.state = State.ABSENT
    engine.add("late", tokens=30)
    engine.abort("r0")
    for _ in range(2):
        engine.step()  # what was under way comes in, and all meet
    for _ in range(4):
        call = engine.step()
        assert set(call.num_scheduled_tokens) == {*(f"r{number}" for number in range(1, 8)), "late"}
        assert call.scheduled_spec_decode_tokens == {}
    engine.run()
    assert {name: count for name, count in engine.generated.items() if name != "r0"} == dict.fromkeys(
        [*(f"r{number}" for number in range(1, 8)), "late"], 30
    )


@pytest.mark.parametrize("drafting", [True, False])
def test_a_prompt_in_the_cache_but_for_one_token_is_verified_with_drafts_only_while_there_are_some(
    config: Any, drafting: bool
) -> None:
    """vLLM writes placeholders for it."""
    engine = two_batches(config)
    prompt = list(range(2 * BLOCK + 1))
    engine.add("r0", prompt, tokens=9)
    engine.run()
    if not drafting:
        engine.scheduler._presence.state = State.ABSENT
    before = len(engine.calls)
    engine.add("r1", prompt, tokens=9)
    engine.run()
    first = next(call for call in engine.calls[before:] if call.num_scheduled_tokens)
    assert first.total_num_scheduled_tokens == first.num_scheduled_tokens["r1"] == (4 if drafting else 1)
    assert first.scheduled_spec_decode_tokens == ({"r1": PLACEHOLDERS} if drafting else {})
    assert engine.generated["r1"] == 9


def test_a_new_drafter_joins_when_nothing_is_under_way_and_all_are_read_again(config: Any) -> None:
    engine = two_batches(config)
    prompt = list(range(3 * BLOCK))
    for number in range(8):
        engine.add(f"r{number}", prompt, tokens=60)
    for _ in range(6):
        engine.step()
    engine.scheduler._presence.state = State.ABSENT
    for _ in range(4):
        engine.step()
    lost_at = len(engine.calls)
    engine.scheduler._presence.state = State.WAITING
    generated = dict(engine.generated)
    first = engine.step()
    assert engine.scheduler._presence.state is State.JOINING
    engine.scheduler._presence.join()
    second = engine.step()
    assert {*first.num_scheduled_tokens, *second.num_scheduled_tokens} == {f"r{number}" for number in range(8)}
    assert abs(len(first.num_scheduled_tokens) - len(second.num_scheduled_tokens)) <= 1
    for call in (first, second):
        cached = call.scheduled_cached_reqs
        assert set(cached.all_token_ids) == cached.resumed_req_ids == set(call.num_scheduled_tokens)
    # The first to be read fills all blocks anew; no block from before is taken for its prefix.
    (name, *_) = first.num_scheduled_tokens
    assert first.num_scheduled_tokens[name] >= len(prompt) + generated[name]
    assert not any(call.scheduled_spec_decode_tokens for call in engine.calls[lost_at:])
    for call in (first, second):  # from then on with drafts
        assert engine.step().scheduled_spec_decode_tokens == dict.fromkeys(call.num_scheduled_tokens, PLACEHOLDERS)
    engine.run()
    assert set(engine.generated.values()) == {60}


def test_an_engine_that_is_paused_comes_to_rest_and_goes_on(config: Any) -> None:
    engine = two_batches(config)
    for number in range(8):
        engine.add(f"r{number}", tokens=30)
    for _ in range(5):
        engine.step()
    engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert not engine.scheduler.has_requests(), "no empty calls until what is under way has come in"
    engine.scheduler.set_pause_state(PauseState.UNPAUSED)
    engine.run()
    assert set(engine.generated.values()) == {30}


def test_few_rows_that_do_better_in_one_batch_get_one(config: Any) -> None:
    engine = two_batches(config)
    pace = engine.scheduler._conductor.pace
    for size in list(range(1, 5)) * 8:
        pace.costs.verified(size, size * (1 + DRAFTS), 25.0)
        pace.costs.drafted(size, size * (1 + DRAFTS), DRAFTS, 10.0)
    pace.acceptance.add([100, 50, 25], [50, 25, 12])
    for number in range(8):
        engine.add(f"r{number}", tokens=30 if number % 2 else 200)
    while any(engine.generated[f"r{number}"] < 30 for number in (1, 3, 5, 7)):
        engine.step()
    for _ in range(3):  # what was under way comes in, and all meet
        engine.step()
    for _ in range(4):
        assert engine.step().num_scheduled_tokens == dict.fromkeys(["r0", "r2", "r4", "r6"], 1 + DRAFTS)
    for number in range(8, 12):
        engine.add(f"r{number}", tokens=200)
    for _ in range(4):
        engine.step()
    sizes = {len(engine.step().num_scheduled_tokens) for _ in range(4)}
    assert sizes == {4}, "with all places taken there are two again"
    engine.run()
    assert sum(engine.generated.values()) == 4 * 30 + 8 * 200


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
    """From the number of a call in which the request samples to that of the next."""
    numbers = CallNumbers()
    numbered = zip(map(numbers.next, engine.calls), engine.sampling, strict=True)
    return (later - call for call, later in pairwise(number for number, names in numbered if name in names))


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
