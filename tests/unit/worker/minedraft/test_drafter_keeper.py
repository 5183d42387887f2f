"""How an engine is kept in drafters, with processes that do as they are told."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from drafter_stand import LONG_S, SETUP, Stand, until

from worker.minedraft import drafter_keeper
from worker.minedraft.drafter_keeper import Call
from worker.minedraft.names import RankDied
from worker.minedraft.presence import Presence, State


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setattr(drafter_keeper, "_LOOK_S", 0.005)
    made = Stand()
    yield made
    made.keeper.end()


def test_one_that_dies_while_the_engine_starts_is_told_and_not_replaced(stand: Stand) -> None:
    stand.keeper.watch()
    stand.made[0].die()
    until(lambda: bool(stand.failed))
    stand.keeper._watcher.join(LONG_S)
    assert stand.failed == ["minedraft::drafter was killed by signal 9"]
    assert len(stand.made) == 1
    assert (stand.presence.state, stand.presence.losses) == (State.ABSENT, 0)


def test_calls_go_to_the_drafter_that_takes_part(stand: Stand) -> None:
    stand.serving()
    first = stand.made[0]
    assert stand.presence.state is State.PRESENT
    assert stand.keeper.call(Call("step", (), {}), replies=False) is first  # type: ignore[comparison-overlap]
    assert first.told == [("load", True), (b"a pickled function", True), ("meet", False), ("step", False)]


def test_one_that_is_lost_while_the_engine_serves_is_replaced(stand: Stand) -> None:
    stand.serving()
    stand.hold = threading.Event()
    stand.made[0].die()
    second = stand.await_made(2)
    assert (stand.presence.state, stand.presence.losses) == (State.ABSENT, 1)
    assert stand.keeper.call(Call("step", (), {}), replies=False) is None
    assert stand.made[0].ended_by_us, "what it shared is given back"
    stand.hold.set()
    stand.await_waiting()
    assert second.told == [(call.method, True) for call in SETUP], "what the first one was told, in order, once"
    assert second.replied == len(SETUP)
    assert stand.keeper.call(Call("step", (), {}), replies=False) is None, "it takes part when it is let in"
    assert stand.await_joined() is second
    assert (stand.presence.state, stand.presence.losses, stand.presence.joins) == (State.PRESENT, 1, 1)
    assert stand.keeper.call(Call("step", (), {}), replies=False) is second  # type: ignore[comparison-overlap]
    assert stand.failed == []


def test_calls_of_an_engine_that_serves_are_not_made_again(stand: Stand) -> None:
    stand.serving()
    stand.keeper.call(Call("asked later", (), {}), replies=True)
    stand.made[0].die()
    stand.await_waiting()
    assert [method for method, _ in stand.made[1].told] == [call.method for call in SETUP]


def test_one_that_dies_while_it_waits_is_replaced_and_was_no_loss(stand: Stand) -> None:
    stand.serving()
    stand.made[0].die()
    stand.await_waiting()
    stand.hold = threading.Event()
    stand.made[1].die()
    third = stand.await_made(3)
    assert stand.presence.state is State.ABSENT
    assert stand.keeper.take_next() is None
    stand.hold.set()
    assert stand.await_joined() is third
    assert (stand.presence.losses, stand.presence.joins) == (1, 1)
    stand.keeper.call(Call("step", (), {}), replies=False)
    assert [drafter.ended_by_us for drafter in stand.made] == [True, True, False]


def test_one_that_is_lost_as_it_is_let_in_leaves_nobody_to_draft(stand: Stand) -> None:
    stand.serving()
    stand.hold = threading.Event()
    stand.made[0].die()
    stand.await_made(2)
    stand.presence.state = State.JOINING  # what the scheduler says a moment too late
    assert stand.keeper.take_next() is None
    assert stand.presence.state is State.ABSENT


def test_one_that_dies_while_it_starts_is_given_back_and_it_is_tried_again_later(stand: Stand) -> None:
    stand.serving()
    stand.hold = threading.Event()
    stand.made[0].die()
    for count in (2, 3):
        stand.await_made(count).die()
    stand.await_made(4)
    assert [drafter.ended_by_us for drafter in stand.made[1:]] == [True, True, False]
    stand.hold.set()
    assert stand.await_joined() is stand.made[3]
    assert stand.waits.said == ["wait"] * 3, "longer each time"


def test_one_that_cannot_be_made_is_tried_again(stand: Stand) -> None:
    stand.serving()
    stand.refused = 2
    stand.made[0].die()
    stand.await_joined()
    assert stand.waits.said == ["wait"] * 3


def test_one_that_takes_no_calls_is_given_up_and_killed_and_replaced(stand: Stand) -> None:
    stand.serving()
    stand.hold = threading.Event()
    first = stand.made[0]
    first.stuck = True
    assert stand.keeper.call(Call("step", (), {}), replies=False) is None
    first.stuck = False
    assert stand.keeper.call(Call("step", (), {}), replies=False) is None, "it is not asked again"
    assert ("step", False) not in first.told
    until(lambda: not first.alive())
    stand.await_made(2)
    stand.hold.set()
    second = stand.await_joined()
    assert stand.keeper.call(Call("step", (), {}), replies=False) is second  # type: ignore[comparison-overlap]


def test_one_that_takes_no_calls_is_the_end_of_an_engine_that_needs_it(stand: Stand) -> None:
    stand.made[0].stuck = True
    with pytest.raises(RankDied, match="takes no calls"):
        stand.keeper.call(Call("step", (), {}), replies=False)


def test_one_that_the_first_verifier_has_given_up_is_killed_and_replaced(stand: Stand) -> None:
    stand.serving()
    stand.presence.give_up()
    until(lambda: not stand.made[0].alive())
    second = stand.await_joined()
    assert not stand.presence.given_up
    time.sleep(0.05)
    assert second.alive(), "that was said of the one before"


def test_one_that_ends_slowly_when_it_is_killed_is_told_once(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stand.serving()
    given_up = stand.made[0]
    monkeypatch.setattr(given_up.proc, "kill", lambda: threading.Timer(0.1, given_up.die).start())
    stand.presence.give_up()
    stand.await_joined()
    assert caplog.text.count("has not answered in time") == 1


def test_one_that_waits_is_not_the_one_that_was_given_up(stand: Stand) -> None:
    stand.serving()
    stand.made[0].die()
    stand.presence.give_up()  # the verifier has noticed, too
    stand.await_waiting()
    time.sleep(0.05)
    assert stand.made[1].alive()


def test_one_that_joins_while_the_one_before_is_given_up_lives(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """To join takes that back; whoever had looked a moment before would kill the next one for it."""
    stand.serving()
    stand.made[0].die()
    stand.presence.give_up()
    stand.await_waiting()

    def looks(presence: Presence) -> bool:
        said = bool(presence._numbers[3])
        if presence.state is State.WAITING:  # it joins right after the look
            presence.state = State.JOINING
            stand.keeper.take_next()
        return said

    monkeypatch.setattr(Presence, "given_up", property(looks))
    time.sleep(0.05)
    assert stand.made[1].alive()
    assert stand.await_joined() is stand.made[1]
    time.sleep(0.05)
    assert stand.made[1].alive()


def test_one_that_takes_too_long_to_start_is_killed_and_it_is_tried_again(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafter_keeper, "_START_S", 0.05)
    stand.serving()
    stand.hold = threading.Event()
    stand.made[0].die()
    until(lambda: len(stand.made) > 1 and stand.made[1].ended_by_us)
    assert stand.presence.state is State.ABSENT
    monkeypatch.setattr(drafter_keeper, "_START_S", LONG_S)
    stand.hold.set()
    assert stand.await_joined().alive()


def test_what_goes_wrong_while_it_is_looked_is_told_and_does_not_end_the_looking(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(drafter_keeper, "_HANG_S", 0.01)
    monkeypatch.setattr(drafter_keeper.log, "handlers", [caplog.handler])  # vLLM's logger may keep it from the root's
    stand.serving()
    wrong = [OSError("no such file"), ValueError("no such process")]

    def forget() -> None:
        if wrong:
            raise wrong.pop(0)

    monkeypatch.setattr(drafter_keeper, "forget_errors", forget)
    stand.made[0].die()
    assert stand.await_joined() is stand.made[1]
    assert "no such file" in caplog.text
    assert "no such process" in caplog.text
    assert stand.presence.losses == 1


def test_after_something_went_wrong_it_is_not_looked_again_at_once(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[None] = []

    def forget() -> None:
        looks.append(None)
        raise OSError("no such file")

    stand.serving()
    monkeypatch.setattr(drafter_keeper, "forget_errors", forget)
    stand.made[0].die()
    until(lambda: bool(looks))
    time.sleep(0.05)
    assert len(looks) == 1
    began = time.monotonic()
    stand.keeper.end()
    assert time.monotonic() - began < drafter_keeper._HANG_S / 2, "nor does the end wait for it"


@pytest.mark.parametrize(("healthy_s", "said"), [(0.0, ["start over", "wait"]), (LONG_S, ["wait"])])
def test_only_after_a_healthy_one_the_waits_start_over(
    healthy_s: float, said: list[str], stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafter_keeper, "_HEALTHY_S", healthy_s)
    stand.serving()
    stand.made[0].die()
    stand.await_waiting()
    assert stand.waits.said == said


def nothing_yet(_: Stand) -> None:
    """It is still starting."""


def it_starts(stand: Stand) -> None:
    stand.serving()
    stand.hold = threading.Event()
    stand.made[0].die()
    stand.await_made(2)


def it_waits(stand: Stand) -> None:
    stand.serving()
    stand.made[0].die()
    stand.await_waiting()


def it_takes_part(stand: Stand) -> None:
    it_waits(stand)
    stand.await_joined()


@pytest.mark.parametrize("moment", [nothing_yet, Stand.serving, it_starts, it_waits, it_takes_part])
def test_the_end_at_any_moment_leaves_the_current_one_alone(moment: Callable[[Stand], object], stand: Stand) -> None:
    moment(stand)
    left = stand.keeper.end()
    there = [drafter for drafter in stand.made if drafter.alive()]
    assert there == ([] if left is None else [left])
    assert all(drafter.ended_by_us for drafter in stand.made if drafter is not left)  # type: ignore[comparison-overlap]
    assert stand.presence.state is State.ABSENT
    assert not stand.keeper._watcher.is_alive()
    made = len(stand.made)
    time.sleep(0.05)
    assert len(stand.made) == made


def test_the_end_does_not_wait_for_a_delay(stand: Stand) -> None:
    stand.serving()
    stand.waits.next = lambda: 3 * LONG_S  # type: ignore[method-assign]
    stand.made[0].die()
    until(lambda: stand.presence.losses == 1)
    began = time.monotonic()
    assert stand.keeper.end() is None
    assert time.monotonic() - began < drafter_keeper._HANG_S


def test_what_dies_at_the_end_is_no_loss(stand: Stand) -> None:
    stand.serving()
    left = stand.keeper.end()
    assert left is not None
    stand.made[0].die()
    time.sleep(0.05)
    assert stand.presence.losses == 0
