"""Ways and numbers of drafts that change from call to call, in vLLM's own scheduler, without models."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from integration.worker.minedraft.imagined_engine import BLOCK, DRAFTS, ImaginedEngine, config_of, two_batches
from lockstep import due, in_lockstep
from vllm.v1.outputs import ModelRunnerOutput

from worker.minedraft import config as told
from worker.minedraft.lanes import CallNumbers, way_of
from worker.strategies.seam import Choice, Load, Strategy, Way

ALL = [
    *(Choice(way, drafts) for way in (Way.TWO, Way.ONE) for drafts in range(DRAFTS + 1)),
    *(Choice(Way.AHEAD, drafts) for drafts in (2, DRAFTS)),
]


class Told:
    """A mode that is told what to choose.

    Args:
        choose: what, when it is asked.
    """

    why = "as told"

    def __init__(self, choose: Callable[[], Choice]) -> None:
        self._choose = choose
        self.asked: list[tuple[Load, Choice]] = []

    def choose(self, load: Load, now: Choice) -> Choice:
        self.asked.append((load, now))
        return self._choose()


def led(engine: ImaginedEngine, choose: Callable[[], Choice]) -> Told:
    """Lead an engine."""
    mode = engine.scheduler._conductor._mode = Told(choose)
    return mode


def under(strategy: Strategy, config: Any, monkeypatch: pytest.MonkeyPatch) -> ImaginedEngine:
    """An engine with this strategy, that measures nothing."""
    monkeypatch.setattr(told, "strategy", lambda: strategy)
    return two_batches(config)


def choices(engine: ImaginedEngine) -> list[Choice]:
    """What each call does."""
    return [Choice(way_of(call), call.num_spec_tokens_to_schedule) for call in engine.calls]


def places(choice: Choice) -> int:
    """Drafts of a row that its next call has."""
    return choice.drafts - (choice.way is Way.AHEAD)


def steps(engine: ImaginedEngine, count: int) -> Iterator[set[str]]:
    """The rows of calls."""
    return (set(engine.step().num_scheduled_tokens) for _ in range(count))


@pytest.mark.parametrize("choice", ALL)
def test_each_choice_does_what_it_says(config: Any, choice: Choice) -> None:
    engine = two_batches(config)
    mode = led(engine, lambda: choice)
    names = [f"r{number}" for number in range(8)]
    for name in names:
        engine.add(name, tokens=90)
    for _ in range(4):
        engine.step()
    batches = list(steps(engine, 4))
    if choice.way is Way.TWO:
        assert [len(batch) for batch in batches] == [4] * 4
        assert batches[0] == batches[2] == set(names) - batches[1]
    else:
        assert batches == [set(names)] * 4
    for call in engine.calls[4:]:
        assert [len(drafts) for drafts in call.scheduled_spec_decode_tokens.values()] == (
            [places(choice)] * len(call.num_scheduled_tokens) if places(choice) else []
        )
    assert set(choices(engine)) == {choice}
    assert {now for _, now in mode.asked[1:]} == {choice}
    engine.run()
    assert set(engine.generated.values()) == {90}


def test_in_one_batch_the_next_call_waits_for_the_result(config: Any) -> None:
    engine = two_batches(config)
    led(engine, lambda: Choice(Way.ONE, 0))
    for number in range(4):
        engine.add(f"r{number}", tokens=30)
    for _ in range(6):
        engine.step()
        assert not engine.scheduler.has_requests()


def test_the_mode_is_asked_once_for_each_call_and_told_of_the_load(config: Any) -> None:
    engine = two_batches(config)
    mode = led(engine, lambda: Choice(Way.TWO, 1))
    for number in range(12):
        engine.add(f"r{number}", 20, tokens=30)
    for _ in range(3):
        engine.step()
        engine.scheduler.has_requests()
        engine.scheduler.has_requests()
    assert len(mode.asked) in {3, 4}  # what comes next may have been decided
    assert mode.asked[0] == (Load(rows=0, waiting=True, places=8), Choice(Way.TWO, DRAFTS))
    load, now = mode.asked[2]
    assert load == Load(rows=8, waiting=True, places=8)
    assert now == Choice(Way.TWO, 1)


@pytest.mark.parametrize("way", [Way.ONE, Way.AHEAD])
def test_a_change_takes_a_turn_and_no_row_waits_for_more(config: Any, way: Way) -> None:
    engine = two_batches(config)
    now = [Choice(Way.TWO, DRAFTS)]
    led(engine, lambda: now[0])
    names = {f"r{number}" for number in range(8)}
    for name in sorted(names):
        engine.add(name, tokens=200)
    for _ in range(5):
        engine.step()
    for target in (way, Way.TWO, way, Way.TWO):
        now[0] = Choice(target, DRAFTS)
        list(steps(engine, 2))
        batches = list(steps(engine, 4))
        assert [len(batch) for batch in batches] == [4 if target is Way.TWO else 8] * 4
        assert batches[0] | batches[1] == names
    calls = [set(call.num_scheduled_tokens) for call in engine.calls]
    assert all(calls), "none is empty"
    for name in names:
        numbers = [number for number, call in enumerate(calls) if name in call]
        assert max(later - call for call, later in pairwise(numbers)) <= 3


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_chosen_the_laws_of_two_batches_hold(seed: int, tiny_pair: tuple[Path, Path]) -> None:
    """Requests of all kinds that come, end, are aborted and preempted, under choices that change at random."""
    engine = two_batches(config_of(tiny_pair, blocks=24, engine_args="--max-num-batched-tokens 96"), seed)
    chance = random.Random(seed)
    now = [chance.choice(ALL)]

    def choose() -> Choice:
        if chance.random() < (1 if seed % 2 else 0.1):
            now[0] = chance.choice(ALL)
        return now[0]

    led(engine, choose)
    _watch(engine)
    wanted: dict[str, int] = {}
    while len(wanted) < 40 or engine.scheduler.has_requests():
        if len(wanted) < 40 and chance.random() < 0.3:
            name = f"r{len(wanted)}"
            wanted[name] = chance.randint(1, 80)
            prompt = chance.choice([5, 60, 200, list(range(BLOCK + 1))])
            engine.add(name, prompt, tokens=wanted[name], structured=chance.random() < 0.2)
        if wanted and chance.random() < 0.03:
            name = chance.choice(list(wanted))
            if name in engine.scheduler.requests:
                wanted[name] = engine.generated[name] = 0
                engine.abort(name)
        engine.step()
    engine.run()
    assert {name: count for name, count in engine.generated.items() if wanted[name]} == {
        name: count for name, count in wanted.items() if count
    }
    _check_placeholders(engine)
    _check_turns(engine, list(wanted))
    run = in_lockstep(engine.calls, 1)
    assert run.filled == [due(engine.calls)] * 2
    assert run.known == [0, 0]


def _watch(engine: ImaginedEngine) -> None:
    """See that no row is scheduled while its result is under way, but to be read again."""
    schedule = engine.scheduler.schedule

    def watched(*args: Any) -> Any:
        under_way = {name for _, sampling in engine._under_way for name in sampling}
        output = schedule(*args)
        resumed = output.scheduled_cached_reqs.resumed_req_ids
        assert not under_way & (output.num_scheduled_tokens.keys() - resumed)
        return output

    engine.scheduler.schedule = watched


def _check_placeholders(engine: ImaginedEngine) -> None:
    """A row has as many as its last call asked for; one that joins may have all that vLLM writes for it."""
    last: dict[str, int] = {}
    for call, choice, sampling in zip(engine.calls, choices(engine), engine.sampling, strict=True):
        joined = {new.req_id for new in call.scheduled_new_reqs} | call.scheduled_cached_reqs.resumed_req_ids
        for name, drafts in call.scheduled_spec_decode_tokens.items():
            assert len(drafts) == DRAFTS == choice.drafts if name in joined else 0 < len(drafts) <= last[name]
        last |= dict.fromkeys(sampling, places(choice))


def _check_turns(engine: ImaginedEngine, names: Sequence[str]) -> None:
    numbers = CallNumbers()
    numbered = list(zip(map(numbers.next, engine.calls), engine.sampling, strict=True))
    for name in names:
        own = [number for number, sampling in numbered if name in sampling]
        assert min((later - call for call, later in pairwise(own)), default=2) >= 2


@pytest.mark.parametrize(
    ("strategy", "ways"),
    [
        (Strategy("auto", "mixed", "adaptive"), {Way.ONE, Way.TWO}),  # a survey, and nothing is measured
        (Strategy("pearl", length="adaptive"), {Way.AHEAD}),
        (Strategy("psd", "suffix", admission="tetris", extra=1), {Way.TWO}),
    ],
    ids=str,
)
def test_auto_and_each_strategy_of_rows_come_to_an_end(
    strategy: Strategy, ways: set[Way], config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = under(strategy, config, monkeypatch)
    for row in range(20):
        engine.add(f"r{row}", tokens=30)
    engine.run()
    assert set(engine.generated.values()) == {30}
    assert {choice.way for choice in choices(engine)} == ways


def test_what_repeats_is_verified_in_place_of_placeholders(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = under(Strategy(source="ngram"), config, monkeypatch)
    for number in range(4):
        engine.add(f"r{number}", [7] * 30, tokens=30)  # the imagined engine only says 7
    for _ in range(6):
        engine.step()
    for call in engine.calls[2:]:
        assert call.scheduled_spec_decode_tokens == dict.fromkeys(call.num_scheduled_tokens, [7] * DRAFTS)
    engine.scheduler._conductor._mode = Told(lambda: Choice(Way.AHEAD, DRAFTS))
    engine.step()
    placeholders = engine.step().scheduled_spec_decode_tokens
    assert set(map(tuple, placeholders.values())) == {(-1,) * (DRAFTS - 1)}, "the drafter goes on from its own"


class Learner:
    """Lengths that write down what they are told.

    Args:
        drafts: to verify.
    """

    def __init__(self, drafts: int) -> None:
        self._drafts = drafts
        self.told: list[tuple[str, int, int]] = []
        self.gone: list[str] = []

    def most(self, request: str, drafts: int, price: float) -> int:
        del request, price
        return min(drafts, self._drafts)

    def verified(self, request: str, drafts: int, accepted: int) -> None:
        self.told.append((request, drafts, accepted))

    def ended(self, request: str) -> None:
        self.gone.append(request)


def test_a_rows_length_is_its_placeholders_and_it_is_told_what_came_of_them(config: Any) -> None:
    engine = two_batches(config)
    learner = engine.scheduler._conductor._lengths = Learner(2)
    for number in range(4):
        engine.add(f"r{number}", tokens=20)
    engine.step()
    engine.add("late")
    engine.abort("late")
    engine.run()
    drafted = [len(drafts) for call in engine.calls for drafts in call.scheduled_spec_decode_tokens.values()]
    assert set(drafted) == {2}
    assert [drafts for _, drafts, _ in learner.told] == drafted
    assert all(0 <= accepted <= 2 for _, _, accepted in learner.told)
    assert sorted(learner.gone) == ["late", "r0", "r1", "r2", "r3"]


def three_rows_drafted(config: Any) -> tuple[Any, Any, list[Any], Learner]:
    """A scheduler and its call with drafts for three rows; what it counts, and what lengths are told."""
    engine, learner = two_batches(config), Learner(DRAFTS)
    counted: list[Any] = []
    scheduler: Any = engine.scheduler
    scheduler._conductor._lengths, scheduler.make_stats = learner, lambda stats, *_, **__: counted.append(stats)
    for name in ("r0", "r1", "r2"):
        engine.add(name)
    led(engine, lambda: Choice(Way.ONE, DRAFTS))
    engine.step()
    engine._finish(*engine._under_way.popleft())
    scheduler.log_stats = True
    return scheduler, scheduler.schedule(), counted, learner


def test_drafts_that_were_not_verified_are_not_counted(config: Any) -> None:
    """A verifier that had fewer drafts than placeholders says so; vLLM counts what was verified."""
    scheduler, output, counted, learner = three_rows_drafted(config)
    assert output.scheduled_spec_decode_tokens == dict.fromkeys(("r0", "r1", "r2"), [-1] * DRAFTS)
    result = ModelRunnerOutput(["r0", "r1", "r2"], {"r0": 0, "r1": 1, "r2": 2}, [[7, 7], [7], [7, 7, 7, 7]])
    result.verified_drafts = {"r0": 2, "r1": 0, "r2": 3}  # type: ignore[attr-defined]
    before = {name: scheduler.requests[name].num_computed_tokens for name in output.num_scheduled_tokens}
    scheduler.update_from_output(output, result)
    (stats,) = counted[-1:]
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (2, 5, 4)
    assert learner.told == [("r0", 2, 1), ("r1", 0, 0), ("r2", 3, 3)]
    after = {name: scheduler.requests[name].num_computed_tokens for name in before}
    assert {name: before[name] - after[name] for name in before} == {"r0": 2, "r1": 3, "r2": 0}


def test_zeros_under_a_grammar_are_neither_drafted_nor_accepted(config: Any) -> None:
    """What the grammar does not allow and what was missing may be the same: the larger of both counts."""
    scheduler, output, counted, learner = three_rows_drafted(config)
    output.num_invalid_spec_tokens = {"r0": 2, "r1": 1}
    result = ModelRunnerOutput(["r0", "r1", "r2"], {"r0": 0, "r1": 1, "r2": 2}, [[7, 7], [7, 7, 7], [7, 7]])
    result.verified_drafts = {"r0": 2, "r1": 1, "r2": 3}  # type: ignore[attr-defined]
    scheduler.update_from_output(output, result)
    (stats,) = counted[-1:]
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (3, 1 + 1 + 3, 1 + 1 + 1)
    assert learner.told == [("r0", 1, 1), ("r1", 1, 1), ("r2", 3, 1)]


def test_what_was_found_for_a_row_without_room_does_not_stay(
    tiny_pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = two_batches(config_of(tiny_pair, engine_args="--max-num-batched-tokens 12"))
    scheduler = engine.scheduler
    now = [Choice(Way.ONE, 0)]
    led(engine, lambda: now[0])
    for number in range(4):
        engine.add(f"r{number}", 4, tokens=60)
    for _ in range(4):
        engine.step()
    assert len(scheduler.running) == 4
    now[0] = Choice(Way.ONE, DRAFTS)
    engine.step()
    monkeypatch.setattr(scheduler._conductor, "found", lambda request: [11, 12, 13, 14])
    left_out = set[str]()
    for _ in range(6):
        scheduled = engine.step().num_scheduled_tokens
        rows = {request.request_id: request for request in scheduler.running}
        left_out |= rows.keys() - scheduled
        assert all(set(request.spec_token_ids) <= {-1} for request in rows.values())
    assert left_out, "so there was no room for some"
    monkeypatch.setattr(scheduler._conductor, "found", lambda request: None)
    for _ in range(6):
        for drafts in engine.step().scheduled_spec_decode_tokens.values():
            assert set(drafts) == {-1}
