"""Who joins a batch, and who changes batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.minedraft.batches import Turn, plan_turn

SIZE = st.integers(0, 300)
ROOM = st.integers(-5, 300)


def turn(mine: int, other: int, waiting: int, room: int) -> tuple[int, int, int, int]:
    """The same numbers in the next turn, when nobody ends or comes meanwhile."""
    admit, hold = plan_turn(mine, other, waiting, room)
    return other + hold, mine + admit - hold, waiting - admit, room - admit


@pytest.mark.parametrize(
    ("numbers", "planned"),
    [
        ((0, 0, 8, 8), Turn(4, 0)),  # an engine starts: half of the first to come,
        ((0, 4, 4, 4), Turn(4, 0)),  # and the others in the next step
        ((0, 0, 1, 8), Turn(1, 0)),  # whoever comes alone need not wait
        ((4, 4, 1, 8), Turn(1, 0)),
        ((5, 4, 1, 8), Turn(0, 0)),  # joins the smaller batch, whose turn is next
        ((8, 2, 3, 9), Turn(0, 0)),  # too late to join, and with newcomers nobody is held
        ((8, 2, 3, 0), Turn(0, 3)),  # there is no room for newcomers
        ((3, 2, 0, 9), Turn(0, 0)),
        ((1, 0, 0, 9), Turn(0, 0)),
        ((2, 8, 0, 9), Turn(0, 0)),  # the larger one's turn is next
    ],
)
def test_a_turn(numbers: tuple[int, int, int, int], planned: Turn) -> None:
    assert plan_turn(*numbers) == planned


@given(mine=SIZE, other=SIZE, waiting=SIZE, room=ROOM)
def test_nobody_is_made_up(mine: int, other: int, waiting: int, room: int) -> None:
    admit, hold = plan_turn(mine, other, waiting, room)
    assert 0 <= admit <= min(waiting, max(room, 0))
    assert 0 <= hold <= mine


@given(waiting=st.integers(1, 300), room=st.integers(1, 300))
def test_an_idle_engine_begins(waiting: int, room: int) -> None:
    assert plan_turn(0, 0, waiting, room).admit > 0


@given(mine=st.integers(1, 300), other=SIZE, waiting=SIZE, room=ROOM)
def test_a_batch_with_requests_is_never_held_back_whole(mine: int, other: int, waiting: int, room: int) -> None:
    assert plan_turn(mine, other, waiting, room).hold < mine


@given(mine=SIZE, other=SIZE, waiting=SIZE, room=ROOM)
def test_no_other_admission_would_leave_the_batches_more_alike(mine: int, other: int, waiting: int, room: int) -> None:
    """Those who are not admitted now join the other batch in the next step."""
    joining = min(waiting, max(room, 0))
    skew = [abs(mine + admit - (other + joining - admit)) for admit in range(joining + 1)]
    assert skew[plan_turn(mine, other, waiting, room).admit] == min(skew)


@given(mine=SIZE, other=SIZE, waiting=SIZE, room=ROOM)
def test_everybody_who_fits_has_joined_after_two_turns(mine: int, other: int, waiting: int, room: int) -> None:
    numbers = turn(*turn(mine, other, waiting, room))
    assert sum(numbers[:2]) == mine + other + min(waiting, max(room, 0))


@given(mine=SIZE, other=SIZE, waiting=SIZE, room=ROOM)
def test_batches_become_alike_and_stay_so(mine: int, other: int, waiting: int, room: int) -> None:
    numbers = mine, other, waiting, room
    for _ in range(4):  # two to let everybody in, and at most one for each batch to give some to the other
        numbers = turn(*numbers)
    assert abs(numbers[0] - numbers[1]) <= 1
    assert plan_turn(*numbers) == Turn(0, 0)
    assert plan_turn(*turn(*numbers)) == Turn(0, 0)


@given(mine=SIZE, other=SIZE)
def test_a_skew_lasts_no_longer_than_a_cycle(mine: int, other: int) -> None:
    mine, other, _, _ = turn(*turn(mine, other, 0, 0))
    assert abs(mine - other) <= 1
