"""The simulation of both lanes: fixed choices take what the method says, and nothing is lost on the way."""

from collections.abc import Callable

import pytest

from worker.lab.profile import PassCost, Profile, tokens_a_cycle
from worker.lab.simulate import Outcome, Work, simulate
from worker.minedraft.pace import Pace
from worker.strategies.seam import Choice, Load, Mode, Way

WORK = Work(rows=200, prompt_tokens=0, output_tokens=200)
PLACES = 20


def pair(v: float = 20.0, draft: float = 2.0, acceptance: float = 0.7) -> Profile:
    return Profile("p", 1, PassCost(v), PassCost(draft), acceptance=(acceptance,))


def run(choice: Choice, profile: Profile, work: Work = WORK, places: int = PLACES, host_ms: float = 1.0) -> Outcome:
    return simulate(profile, choice, work, places=places, drafts=5, host_ms=host_ms)


@pytest.mark.parametrize(
    ("way", "drafts", "draft_ms", "rows", "step_ms"),
    [
        (Way.ONE, 0, 2, 20, 20),
        (Way.ONE, 4, 2, 20, 20 + 8),
        (Way.TWO, 4, 2, 10, 20),
        (Way.TWO, 4, 8, 10, 32),
        (Way.TWO, 0, 2, 10, 20),
    ],
)
def test_a_step_takes_what_the_method_says(way: Way, drafts: int, draft_ms: float, rows: int, step_ms: float) -> None:
    found = run(Choice(way, drafts), pair(draft=draft_ms), host_ms=0)
    steady = rows * tokens_a_cycle([0.7] * drafts) / step_ms * 1e3
    assert found.tokens_per_s == pytest.approx(steady, rel=0.08), "but for the start and the end"


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_ahead_t_hides_and_rows_hit_and_miss(share: float) -> None:
    found = run(Choice(Way.AHEAD, 4), pair(draft=4.9, acceptance=share), host_ms=0)
    hit = share / (1 - share**4 + share)
    steady = 20 * (hit * tokens_a_cycle([share] * 3) + 1 - hit) / 20 * 1e3
    assert found.tokens_per_s == pytest.approx(steady, rel=0.12), "each row's first two calls have no drafts"


def test_the_host_takes_its_part_of_each_step() -> None:
    slow, fast = (run(Choice(Way.ONE, 0), pair(), host_ms=host) for host in (5.0, 0.0))
    assert slow.ms / fast.ms == pytest.approx(25 / 20, rel=1e-6)


def test_what_nothing_hides_may_differ_by_what_is_done() -> None:
    told: list[tuple[Choice, int]] = []

    def host(choice: Choice, before: int) -> float:
        told.append((choice, before))
        return 5.0 if choice.drafts else 0.0

    for choice, step_ms in ((Choice(Way.ONE, 0), 20.0), (Choice(Way.ONE, 1), 20 + 2 + 5.0)):
        told.clear()
        found = simulate(pair(), choice, WORK, places=PLACES, drafts=5, host_ms=host)
        assert found.ms == pytest.approx(step_ms * len(told), rel=0.02)
        assert told == [(choice, before) for before in range(len(told))]


def test_a_drafter_that_cannot_keep_up_is_waited_for() -> None:
    found = run(Choice(Way.ONE, 0), pair(draft=30))
    assert found.tokens_per_s == pytest.approx(20 / 30 * 1e3, rel=0.08)


def test_prompts_take_time_in_both_lanes_and_hide_in_part_behind_each_other() -> None:
    bound = Profile("p", 1, PassCost(0, token_ms=0.01), PassCost(0, token_ms=0.005), acceptance=(0.7,))

    def added(way: Way) -> float:
        """ms for each row."""
        long, short = (run(Choice(way, 2), bound, Work(200, prompt, 200), host_ms=0).ms for prompt in (1000, 0))
        return (long - short) / 200

    assert added(Way.ONE) == pytest.approx(10 + 5, rel=0.05)
    assert 10 < added(Way.TWO) < 0.97 * added(Way.ONE)


def test_every_choice_gives_the_same_texts_and_all_of_them() -> None:
    tokens = {run(Choice(way, drafts), pair()).tokens for way in Way for drafts in (2, 5)}
    assert len(tokens) == 1
    assert tokens.pop() == pytest.approx(200 * 200, rel=0.05)


@pytest.mark.parametrize("rows", [1, 2, 3, 19])
def test_few_rows_come_to_their_end(rows: int) -> None:
    for choice in (Choice(Way.TWO, 3), Choice(Way.ONE, 3), Choice(Way.AHEAD, 3), Choice(Way.TWO, 0)):
        assert run(choice, pair(), Work(rows, 10, 50), places=8).tokens > 0


class Turning:
    """Another choice in every so many calls; notes what it is told."""

    def __init__(self, calls: int) -> None:
        self.calls, self.number = calls, 0
        self.loads: list[Load] = []

    def choose(self, load: Load, now: Choice) -> Choice:
        self.loads.append(load)
        self.number += 1
        choices = (Choice(Way.TWO, 3), Choice(Way.ONE, 2), Choice(Way.AHEAD, 5), Choice(Way.ONE, 0))
        return choices[self.number // self.calls % len(choices)]


def turning(mode: Turning) -> Callable[[Pace], Mode]:
    return lambda _: mode


@pytest.mark.parametrize("calls", [1, 2, 7, 50])
def test_choices_may_change_at_any_call(calls: int) -> None:
    mode = Turning(calls)
    found = simulate(pair(), turning(mode), WORK, places=PLACES, drafts=5, host_ms=1)
    assert found.tokens == run(Choice(Way.ONE, 0), pair()).tokens
    assert sum(found.calls.values()) <= mode.number
    assert max(load.rows for load in mode.loads) == PLACES
    waiting = [load.waiting for load in mode.loads]
    assert waiting == sorted(waiting, reverse=True), "rows wait until none does"


def test_what_is_measured_is_what_devices_take() -> None:
    paces: list[Pace] = []

    def make(pace: Pace) -> Mode:
        paces.append(pace)
        return Turning(50)

    simulate(pair(), make, WORK, places=PLACES, drafts=5, host_ms=1)
    (pace,) = paces
    assert pace.costs.verify_ms(20, 60) == pytest.approx(20)
    assert pace.costs.draft_ms(20, 60, 4) == pytest.approx(8)
    assert pace.acceptance.at(0) == pytest.approx(0.7, abs=0.03)
    for way in (Way.TWO, Way.ONE, Way.AHEAD):
        assert pace.costs.host_ms(way, True) == pytest.approx(1, abs=0.2)
