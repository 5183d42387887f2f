"""Two batches or one for the last rows, by measured times."""

import pytest
from devices import Devices
from hypothesis import given
from hypothesis import strategies as st

from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.modes.few_rows import FewRows
from worker.strategies.seam import Choice, Load, Way

TWO, ONE, AHEAD = Choice(Way.TWO, 4), Choice(Way.ONE, 4), Choice(Way.AHEAD, 4)


def mode(devices: Devices, most: int = 64, *, ahead: bool = False) -> FewRows:
    return FewRows(4, *devices.learnt(most), ahead=ahead)


def chosen(few: FewRows, rows: int, now: Choice = TWO, *, waiting: bool = False, places: int = 256) -> Choice:
    return few.choose(Load(rows, waiting, places), now)


def test_where_v_is_the_same_for_half_of_the_rows_one_batch_is_faster_unless_t_is_as_long() -> None:
    for rows in (2, 8, 32):
        assert chosen(mode(Devices(lambda _: 20.0, lambda _: 2.0)), rows) == ONE
        assert chosen(mode(Devices(lambda _: 20.0, lambda _: 5.0)), rows) == TWO
        assert chosen(mode(Devices(lambda _: 20.0, lambda _: 20.0)), rows) == ONE, "it is t that is longer, by far"


def test_where_half_of_the_rows_take_half_as_long_two_batches_are_faster() -> None:
    for rows in (2, 8, 32):
        assert chosen(mode(Devices(lambda tokens: tokens, lambda tokens: tokens / 9)), rows) == TWO


def test_while_rows_wait_or_many_run_there_are_two_batches() -> None:
    few = mode(Devices(lambda _: 20.0, lambda _: 1.0))
    assert chosen(few, 8, places=16) == ONE
    assert chosen(few, 8, ONE, places=15) == TWO
    assert few.why == "two batches, 4 drafts: 8 of 15 places taken"
    assert chosen(few, 8, ONE, places=16, waiting=True) == TWO
    assert chosen(few, 0, ONE) == TWO


def test_rows_are_drafted_ahead_where_nearly_all_drafts_are_accepted() -> None:
    right, wrong = (Devices(lambda _: 20.0, lambda _: 2.0, accepted) for accepted in (0.99, 0.5))
    assert chosen(mode(right, ahead=True), 2) == AHEAD
    assert chosen(mode(right, ahead=False), 2) == ONE
    assert chosen(mode(wrong, ahead=True), 2) == ONE


@pytest.mark.parametrize(
    ("share", "from_two", "from_one"), [(0.93, ONE, ONE), (0.97, TWO, ONE), (1.03, TWO, ONE), (1.07, TWO, TWO)]
)
def test_rows_change_only_where_that_is_clearly_faster(share: float, from_two: Choice, from_one: Choice) -> None:
    """One batch takes `share` times what two take."""
    devices = Devices(lambda _: 20.0, lambda _: 20.0 * (2 * share - 1) / 4)
    if share > 1:  # a V that is always the same is never worse in one batch
        devices = Devices(lambda tokens: tokens, lambda _: (share - 1) * 40 / 4)
    few = mode(devices)
    assert chosen(few, 8, TWO) == from_two
    assert chosen(few, 8, ONE) == from_one


def test_nothing_is_said_of_sizes_that_were_never_seen() -> None:
    few = mode(Devices(lambda _: 20.0, lambda _: 1.0), most=8)
    assert chosen(few, 4) == ONE
    assert chosen(few, 32) == TWO
    assert chosen(FewRows(4, Costs(), Acceptance(), ahead=True), 4) == TWO


def test_a_way_that_seems_dear_for_its_host_time_is_tried_again() -> None:
    costs, acceptance = Devices(lambda _: 20.0, lambda _: 1.0).learnt(64)
    few = FewRows(4, costs, acceptance, ahead=False)
    for _ in range(20):
        costs.waited(Way.TWO, 1.0, drafting=True)
        costs.waited(Way.ONE, 200.0, drafting=True)
    assert chosen(few, 8) == TWO
    for _ in range(8000):
        costs.waited(Way.TWO, 1.0, drafting=True)
    assert chosen(few, 8) == ONE


def test_a_change_says_why() -> None:
    few = mode(Devices(lambda _: 20.0, lambda _: 1.0))
    assert few.why == "two batches, 4 drafts: until few rows are left"
    chosen(few, 8)
    assert few.why.startswith("one batch, 4 drafts: ")
    assert " tokens/s by measured times, before " in few.why


@given(rows=st.integers(1, 60), v=st.floats(1, 100), t=st.floats(0.1, 30), slope=st.floats(0, 1))
def test_what_is_better_to_change_to_is_better_to_stay_with(rows: int, v: float, t: float, slope: float) -> None:
    few = mode(Devices(lambda tokens: v + slope * tokens, lambda tokens: t + slope * tokens / 5), ahead=True)
    first = chosen(few, rows)
    assert chosen(few, rows, first) == first
