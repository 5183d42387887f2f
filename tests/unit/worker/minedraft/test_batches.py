"""Who joins a batch, and who changes batches."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.minedraft.batches import Joining, Load, Turn, plan_turn

WORK = st.sampled_from([1, 5, 17])
LOADS = st.lists(st.builds(Load, WORK, st.booleans()), max_size=40)
UNDER_WAY = st.integers(0, 300)
JOINING = st.lists(st.builds(Joining, st.integers(0, 2000), WORK), max_size=40)
#: How long an example takes says nothing on a busy machine.
unhurried = settings(deadline=None)


def loads(*works: int) -> list[Load]:
    """Requests that may change batches."""
    return [Load(work, movable=True) for work in works]


def joiners(*works: int, prompt: int = 100) -> list[Joining]:
    """Newcomers with prompts of one length."""
    return [Joining(prompt, work) for work in works]


@pytest.mark.parametrize(
    ("ready", "under_way", "joining", "planned"),
    [
        ([], 0, [5] * 8, Turn(4, ())),  # an engine starts: half of the first to come,
        ([], 20, [5] * 4, Turn(4, ())),  # and the others in the next step
        ([], 0, [5], Turn(1, ())),  # whoever comes alone need not wait
        ([5] * 4, 20, [5], Turn(1, ())),
        ([5] * 5, 20, [5], Turn(0, ())),  # joins the smaller batch, whose turn is next
        ([5] * 8, 10, [5] * 6, Turn(0, ())),  # too late to join, and newcomers fill the gap: nobody waits
        ([5] * 8, 10, [5] * 2, Turn(0, (6, 7))),  # they fill some of it
        ([5] * 8, 10, [], Turn(0, (5, 6, 7))),  # there are none
        ([5] * 8, 0, [], Turn(0, (4, 5, 6, 7))),  # a batch ran empty
        ([5] * 3, 10, [], Turn(0, ())),  # one more or less: as alike as can be
        ([5], 0, [], Turn(0, ())),
        ([], 0, [], Turn(0, ())),
        ([5] * 2, 40, [], Turn(0, ())),  # the larger one's turn is next
        ([], 0, [17, 1, 1, 1], Turn(1, ())),  # work counts, not requests
        ([5, 5, 1, 1], 7, [], Turn(0, (2, 3))),  # one of 5 would turn 5 round: those of 1 go
        ([1, 1, 5, 5], 2, [], Turn(0, (3,))),  # the newest go first
        ([8, 9], 7, [], Turn(0, (0,))),  # either turns 10 round, the smaller one to 6
    ],
)
def test_a_turn(ready: list[int], under_way: int, joining: list[int], planned: Turn) -> None:
    assert plan_turn(loads(*ready), under_way, joiners(*joining)) == planned


@pytest.mark.parametrize(
    ("work", "moved"),
    [(30, (1,)), (40, ())],  # 1 less in each step: in eight cycles 16, for half a turn of 30 / 2 and of 40 / 2
)
def test_a_move_that_turns_the_difference_round_must_pay(work: int, moved: tuple[int, ...]) -> None:
    assert plan_turn(loads(work, work), work - 1, []).hold == moved


def test_who_must_go_on_stays_and_does_not_count() -> None:
    reading = Load(5, movable=False)
    assert plan_turn([*loads(5, 5, 5), reading, reading], 5, []).hold == (2,)
    assert plan_turn([reading] * 4, 0, joiners(5, 5)).admit == 1


@pytest.mark.parametrize(
    ("prompts", "admitted"),
    [((900, 100, 100), 1), ((100, 100, 900), 2), ((100, 100, 100), 2), ((0, 0, 0), 2)],
)
def test_prompts_decide_where_work_does_not(prompts: tuple[int, ...], admitted: int) -> None:
    assert plan_turn([], 0, [Joining(prompt, 5) for prompt in prompts]).admit == admitted


def test_prompts_never_outweigh_work() -> None:
    assert plan_turn([], 0, [Joining(9000, 5), *joiners(5, 5, 5)]).admit == 2


def test_one_batch_of_two_waits_for_the_other_and_takes_everybody() -> None:
    ready = [Load(5, movable=True), Load(5, movable=False), Load(1, movable=True)]
    assert plan_turn(ready, 7, joiners(5, 5), together=True) == Turn(0, (0, 2))
    assert plan_turn(ready, 0, joiners(5, 5), together=True) == Turn(2, ())


@unhurried
@given(ready=LOADS, under_way=UNDER_WAY, joining=JOINING, together=st.booleans())
def test_nobody_is_made_up(ready: list[Load], under_way: int, joining: list[Joining], together: bool) -> None:
    admit, hold = plan_turn(ready, under_way, joining, together=together)
    assert 0 <= admit <= len(joining)
    assert list(hold) == sorted(set(hold))
    assert all(ready[index].movable for index in hold)


@unhurried
@given(ready=LOADS, under_way=UNDER_WAY, joining=JOINING)
def test_a_step_is_never_left_empty(ready: list[Load], under_way: int, joining: list[Joining]) -> None:
    admit, hold = plan_turn(ready, under_way, joining)
    if ready:
        assert len(hold) < len(ready)
    elif joining:
        assert admit > 0


@unhurried
@given(ready=LOADS, under_way=UNDER_WAY, joining=JOINING)
def test_no_other_admission_would_leave_the_batches_more_alike(
    ready: list[Load], under_way: int, joining: list[Joining]
) -> None:
    """Those who are not admitted now join the other batch in the next step."""
    mine = sum(load.work for load in ready if load.movable)
    work = [new.work for new in joining]
    gaps = [abs(mine + sum(work[:count]) - under_way - sum(work[count:])) for count in range(len(joining) + 1)]
    assert gaps[plan_turn(ready, under_way, joining).admit] == min(gaps)


@unhurried
@given(ready=LOADS, under_way=UNDER_WAY)
def test_moves_make_a_larger_batch_smaller_and_pay(ready: list[Load], under_way: int) -> None:
    hold = plan_turn(ready, under_way, []).hold
    gap = sum(load.work for load in ready if load.movable) - under_way
    moved = sum(ready[index].work for index in hold)
    assert not hold or 8 * (gap - abs(gap - 2 * moved)) > moved / 2


@dataclass(eq=False)
class Row:
    """A request of the engine below."""

    work: int
    chunks: int  # steps in which it reads its prompt
    unread: int = 0
    ending: bool = False

    @property
    def movable(self) -> bool:
        return not self.unread and not self.ending


@dataclass
class Engine:
    """Two steps in flight, as in vLLM: a step is planned while the one before it is executed."""

    room: int
    together: bool = False
    waiting: list[Row] = field(default_factory=list)
    running: list[Row] = field(default_factory=list)  # the oldest first
    in_flight: list[Row] = field(default_factory=list)

    def ready(self) -> list[Row]:
        return [row for row in self.running if row.unread or row not in self.in_flight]

    def fitting(self) -> list[Row]:
        return self.waiting[: max(self.room - len(self.running), 0)]

    def step(self) -> list[Row]:
        """Schedule one step. Returns: who was held."""
        ready, fitting = self.ready(), self.fitting()
        under_way = sum(row.work for row in self.in_flight if not row.unread)
        turn = plan_turn(
            [Load(row.work, row.movable) for row in ready],
            under_way,
            [Joining(100 * row.chunks, row.work) for row in fitting],
            together=self.together,
        )
        held = [ready[index] for index in turn.hold]
        joined = fitting[: turn.admit]
        self.waiting = self.waiting[turn.admit :]
        self.running += joined
        for row in joined:
            row.unread = row.chunks
        self.in_flight = [row for row in ready if row not in held] + joined
        for row in self.in_flight:
            row.unread = max(row.unread - 1, 0)
        could = ready or fitting
        assert self.in_flight or not could or (self.together and under_way), "a step is empty"
        return held

    def leave(self, row: Row) -> None:
        for place in (self.waiting, self.running, self.in_flight):
            if row in place:
                place.remove(row)

    def preempt(self, row: Row) -> None:
        self.leave(row)
        row.unread = 0
        self.waiting.insert(0, row)

    def fill(self) -> None:
        """Go on until all who fit have joined and read their prompt."""
        for _ in range(4 + 2 * sum(row.chunks for row in self.running + self.waiting)):
            if not self.fitting() and not any(row.unread for row in self.running):
                return
            self.step()
        raise AssertionError("a request waits for ever")

    def gap(self) -> tuple[int, int]:
        """How much larger a batch is than the other one, and how much it may be: a request, or a tenth of all."""
        batches = self.ready(), self.in_flight
        mine, other = (sum(row.work for row in rows) for rows in batches)
        to_come = [sum(row.work for row in rows if row.movable) for rows in batches]
        largest = max((row.work for row in self.running if row.movable), default=0)
        return max(to_come[0] - other, to_come[1] - mine), max(largest, (mine + other) // 10)


def settle(engine: Engine) -> None:
    """Two turns after the last disturbance the batches are alike, and stay so; or are one."""
    held = engine.step() + engine.step()
    assert engine.together or len(held) == len(set(held)), "held twice in a row"
    if engine.together:
        engine.step()
    else:
        gap, allowed = engine.gap()
        assert gap <= allowed
    scheduled = [list(engine.in_flight)]
    for _ in range(3):
        assert not engine.step(), "a request changes batches again"
        scheduled.append(list(engine.in_flight))
    for first, second in pairwise(scheduled):
        assert sorted(map(id, first + second)) == sorted(map(id, engine.running)), "not every second step"
        assert not engine.together or not first or not second, "two batches"


def started(rows: Iterable[Row], room: int) -> Engine:
    engine = Engine(room, waiting=list(rows))
    engine.fill()
    return engine


ROWS = st.lists(st.builds(Row, WORK, st.just(1)), min_size=1, max_size=60)


@unhurried
@given(rows=ROWS, room=st.integers(1, 60))
def test_an_engine_that_starts_fills_both_batches(rows: list[Row], room: int) -> None:
    settle(started(rows, room))


@unhurried
@given(rows=ROWS, data=st.data())
def test_batches_become_alike_whoever_leaves(rows: list[Row], data: st.DataObject) -> None:
    engine = started(rows, len(rows))
    for row in data.draw(st.lists(st.sampled_from(rows), unique=True)):
        engine.leave(row)
    settle(engine)


@unhurried
@given(rows=ROWS, turns=st.integers(0, 3))
def test_a_batch_that_ran_empty_is_filled_from_the_other(rows: list[Row], turns: int) -> None:
    engine = started(rows, len(rows))
    for _ in range(turns):
        engine.step()
    for row in list(engine.in_flight):
        engine.leave(row)
    settle(engine)


@unhurried
@given(rows=ROWS, long=st.integers(1, 5))
def test_long_prompts_move_nobody_to_and_fro(rows: list[Row], long: int) -> None:
    engine = started(rows, len(rows) + long)
    engine.waiting = [Row(5, chunks=30) for _ in range(long)]
    for _ in range(6):
        engine.step()
    assert not engine.waiting
    assert not any(engine.step() for _ in range(10))


@unhurried
@given(rows=ROWS, turns=st.integers(0, 3))
def test_two_batches_become_one_and_two_again(rows: list[Row], turns: int) -> None:
    engine = started(rows, len(rows))
    for together in (True, False):
        engine.together = together
        for _ in range(turns):
            engine.step()
        settle(engine)


class Disturbances(RuleBasedStateMachine):
    """Whatever happens, in whatever order, is forgotten two quiet turns later."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(room=12)

    @rule(work=WORK, chunks=st.integers(1, 3), count=st.integers(1, 6))
    def rows_come(self, work: int, chunks: int, count: int) -> None:
        self.engine.waiting += [Row(work, chunks) for _ in range(count)]

    @precondition(lambda self: self.engine.ready())
    @rule(data=st.data())
    def a_row_ends(self, data: st.DataObject) -> None:
        self.engine.leave(data.draw(st.sampled_from(self.engine.ready())))

    @precondition(lambda self: self.engine.running + self.engine.waiting)
    @rule(data=st.data())
    def a_row_is_aborted(self, data: st.DataObject) -> None:
        self.engine.leave(data.draw(st.sampled_from(self.engine.running + self.engine.waiting)))

    @precondition(lambda self: self.engine.running)
    @rule(data=st.data())
    def a_row_is_preempted(self, data: st.DataObject) -> None:
        self.engine.preempt(data.draw(st.sampled_from(self.engine.running)))

    @precondition(lambda self: self.engine.running)
    @rule(data=st.data())
    def a_row_comes_near_its_end(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.engine.running)).ending = not self.engine.together

    @rule(room=st.integers(1, 20))
    def room_changes(self, room: int) -> None:
        self.engine.room = room

    @rule(together=st.booleans())
    def two_batches_or_one(self, together: bool) -> None:
        self.engine.together = together
        for row in self.engine.running + self.engine.waiting:
            row.ending = False  # in one batch this plays no part

    @rule(turns=st.integers(1, 3))
    def turns_pass(self, turns: int) -> None:
        for _ in range(turns):
            self.engine.step()

    @rule()
    def it_is_quiet(self) -> None:
        self.engine.fill()
        settle(self.engine)

    @invariant()
    def only_rows_that_run_are_in_flight(self) -> None:
        assert set(self.engine.in_flight) <= set(self.engine.running)


TestDisturbances = Disturbances.TestCase
TestDisturbances.settings = settings(unhurried, max_examples=60, stateful_step_count=30)
