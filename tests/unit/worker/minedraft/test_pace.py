"""How long batches take, and when one batch does better than two."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.minedraft import pace
from worker.minedraft.pace import Pace, Times, one_batch_is_faster
from worker.minedraft.stages import DRAFTER, Stage, StageClock, ring_path, verifier_name

SIZES = (1, 2, 4, 8, 16, 32)
MS = 1_000_000


def times(ms: Callable[[int], float], sizes: Sequence[int] = SIZES) -> Times:
    made = Times()
    for size in sizes:
        made.add(size, ms(size))
    return made


def test_a_size_that_was_seen_once_takes_what_it_took() -> None:
    made = Times()
    assert made.largest == 0
    made.add(4, 7)
    assert made.largest == 4
    assert made(4) == 7


def test_between_sizes_there_are_straight_lines_and_none_beyond() -> None:
    made = times(lambda size: 10.0 * size, [8, 2])
    assert made(5) == pytest.approx(50)
    assert made(6.5) == pytest.approx(65)
    assert made(1) == made(0) == 20
    assert made(9) == 80


def test_what_was_long_ago_is_forgotten() -> None:
    made = Times()
    for ms in [100.0] * 50 + [10.0] * 5:
        made.add(1, ms)
    assert 10 < made(1) < 50, "not by a few passes"
    for _ in range(50):
        made.add(1, 10)
    assert made(1) == pytest.approx(10, abs=0.1)


@given(st.lists(st.floats(1, 100), min_size=1))
def test_a_mean_is_within_what_was_seen(seen: list[float]) -> None:
    made = Times()
    for ms in seen:
        made.add(3, ms)
    assert min(seen) - 1e-9 <= made(3) <= max(seen) + 1e-9


@pytest.mark.parametrize("rows", [2, 3, 8, 31, 32])
def test_where_half_the_rows_take_as_long_one_batch_is_faster_unless_drafting_is_as_long(rows: int) -> None:
    """Two batches: 2 max(V, t) a cycle; one: V + t."""
    for draft, faster in ((1.0, True), (10.0, True), (17.9, True), (18.1, False), (20.0, False), (22.1, False)):
        assert one_batch_is_faster(times(lambda _: 20.0), times(lambda _, ms=draft: ms), rows) is faster, draft
    assert one_batch_is_faster(times(lambda _: 20.0), times(lambda _: 22.3), rows), "it is t that is longer, by far"


@pytest.mark.parametrize("share", [0.3, 0.9, 1.0, 1.1, 3.0])
def test_where_half_the_rows_take_half_as_long_two_batches_are_faster(share: float) -> None:
    for rows in (2, 4, 10, 32):
        assert not one_batch_is_faster(times(float), times(lambda size: share * size), rows)


def test_a_pass_with_a_floor_does_better_in_one_batch_while_rows_are_few() -> None:
    verify, draft = times(lambda size: max(10.0, size)), times(lambda size: max(5.0, size / 2))
    assert [one_batch_is_faster(verify, draft, rows) for rows in (2, 8, 10, 16, 32)] == [True, True, True, False, False]


@given(rows=st.integers(0, 40), v=st.floats(0.1, 100), t=st.floats(0.1, 100), slope=st.floats(0, 10))
def test_the_choice_takes_less_time(rows: int, v: float, t: float, slope: float) -> None:
    verify, draft = times(lambda size: v + slope * size), times(lambda size: t + slope * size / 3)
    one, two = verify(rows) + draft(rows), 2 * max(verify(rows / 2), draft(rows / 2))
    if one_batch_is_faster(verify, draft, rows):
        assert 0 < rows <= SIZES[-1]
        assert one < two
        assert one_batch_is_faster(verify, draft, rows, now=True), "what is better to change to is better to stay with"
    elif 0 < rows <= SIZES[-1] and not one_batch_is_faster(verify, draft, rows, now=True):
        assert two < one


@pytest.mark.parametrize("rows", [2, 8, 32])
@pytest.mark.parametrize(
    ("draft", "from_two", "from_one"),
    [(0.94, True, True), (0.96, False, True), (1.0, False, True), (1.04, False, True), (1.06, False, False)],
)
def test_rows_change_to_one_batch_or_back_only_where_that_is_clearly_faster(
    draft: float, from_two: bool, from_one: bool, rows: int
) -> None:
    """One batch takes `draft` times what two take."""
    verify, short = times(lambda _: 10.0), times(lambda _: 10 * (2 * draft - 1))
    if draft > 1:  # all sizes of V alike are never worse in one batch
        verify, short = times(float), times(lambda size: (draft - 1) * size)
    assert one_batch_is_faster(verify, short, rows) is from_two
    assert one_batch_is_faster(verify, short, rows, now=True) is from_one


def test_nothing_is_said_of_sizes_that_were_never_seen() -> None:
    flat, short = times(lambda _: 20.0), times(lambda _: 1.0, [1, 2, 4])
    assert one_batch_is_faster(flat, short, 4)
    assert not one_batch_is_faster(flat, short, 5)
    assert not one_batch_is_faster(short, flat, 5)
    assert not one_batch_is_faster(flat, flat, 0)
    assert not one_batch_is_faster(Times(), flat, 1)
    assert not one_batch_is_faster(flat, Times(), 1)


class Clocks:
    """The rings of an engine's first verifier and drafter, and time as it passes for them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.ns = 10**12
        monkeypatch.setattr("worker.minedraft.stages.time.monotonic_ns", lambda: self.ns)
        monkeypatch.setattr(pace.time, "monotonic", lambda: self.ns / 1e9)
        self.verifier = StageClock(ring_path(folder, verifier_name(0)))
        self.drafter = StageClock(ring_path(folder, DRAFTER))

    def verify(self, requests: int, ms: int, prefill: int = 0, drafts: int = 3) -> None:
        """A pass, after a wait for drafts that is of no interest."""
        stages = ((Stage.RECV, 1000), (Stage.PREPARE, 1), (Stage.FORWARD, ms - 2), (Stage.SAMPLE, 1), (Stage.SEND, 9))
        self._record(self.verifier, stages, requests, prefill, drafts)

    def draft(self, requests: int, ms: int, prefill: int = 0) -> None:
        stages = ((Stage.PREPARE, 3), (Stage.RECV, 1000), (Stage.DRAFT, ms), (Stage.SEND, 9))
        self._record(self.drafter, stages, requests, prefill)

    def later(self) -> None:
        self.ns += 300 * MS

    def _record(
        self, clock: StageClock, stages: Sequence[tuple[Stage, int]], requests: int, prefill: int, drafts: int = 0
    ) -> None:
        clock.begin(1)
        clock.count(requests=requests, tokens=requests * 4, prefill=prefill)
        if drafts:
            clock.drafts([drafts] * requests, [0] * requests)
        for stage, ms in stages:
            clock.start(stage)
            self.ns += ms * MS
            clock.stop(stage)
        clock.commit()


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(tmp_path, monkeypatch)


def test_v_is_from_the_inputs_to_the_sample_and_t_the_drafting_alone(clocks: Clocks) -> None:
    follows = Pace(clocks.folder)
    for size in (2, 4):
        clocks.verify(size, 20)
        clocks.draft(size, 6)
    assert follows.one_batch_is_faster(4, now=False)
    assert (follows.verify(4), follows.draft(4)) == (pytest.approx(20), pytest.approx(6))


def test_passes_that_read_prompts_do_not_count(clocks: Clocks) -> None:
    follows = Pace(clocks.folder)
    for _ in range(2):
        clocks.verify(4, 900, prefill=1)
        clocks.draft(4, 900, prefill=4)
    assert not follows.one_batch_is_faster(4, now=False)
    assert (follows.verify.largest, follows.draft.largest) == (0, 0)


def test_passes_without_drafts_do_not_count(clocks: Clocks) -> None:
    """As there are while the drafter is lost: they check a token of each request, not four."""
    follows = Pace(clocks.folder)
    for drafts, ms in ((3, 20), (0, 4)):
        clocks.verify(4, ms, drafts=drafts)
    clocks.verify(8, 4, drafts=0)
    follows.one_batch_is_faster(4, now=False)
    assert (follows.verify(4), follows.verify.largest) == (pytest.approx(20), 4)


def test_what_rows_do_now_counts_for_what_they_do_next(clocks: Clocks) -> None:
    follows = Pace(clocks.folder)
    for size in (2, 4):
        clocks.verify(size, 20)
        clocks.draft(size, 19)
    assert not follows.one_batch_is_faster(4, now=False)
    assert follows.one_batch_is_faster(4, now=True)


def test_a_pass_that_did_not_come_to_its_end_does_not_count(clocks: Clocks) -> None:
    clocks.drafter.begin(1)
    clocks.drafter.count(requests=4, tokens=16, prefill=0)
    clocks.drafter.commit()  # near the end of the context vLLM drafts nothing
    follows = Pace(clocks.folder)
    assert not follows.one_batch_is_faster(4, now=False)
    assert follows.draft.largest == 0


def test_the_clock_is_read_now_and_then(clocks: Clocks) -> None:
    for size in (2, 4):
        clocks.verify(size, 20)
        clocks.draft(size, 2)
    follows = Pace(clocks.folder)
    assert follows.one_batch_is_faster(4, now=False)
    for _ in range(50):
        now = clocks.ns
        clocks.draft(2, 20)
        clocks.draft(4, 20)
        clocks.ns = now  # no time has passed for who reads
    assert follows.one_batch_is_faster(4, now=False), "what is new has not been read"
    clocks.later()
    assert not follows.one_batch_is_faster(4, now=False)


def test_a_drafter_that_was_started_again_is_followed(clocks: Clocks) -> None:
    follows = Pace(clocks.folder)
    clocks.draft(4, 20)
    follows.one_batch_is_faster(4, now=False)
    clocks.drafter = StageClock(ring_path(clocks.folder, DRAFTER))
    clocks.draft(8, 5)
    clocks.later()
    follows.one_batch_is_faster(4, now=False)
    assert (follows.draft(4), follows.draft(8)) == (pytest.approx(20), pytest.approx(5))


def test_outside_an_engine_and_before_it_has_begun_nothing_is_known(tmp_path: Path) -> None:
    assert not Pace(None).one_batch_is_faster(1, now=False)
    assert not Pace(tmp_path).one_batch_is_faster(1, now=False)


def test_records_of_a_size_are_taken_in_in_their_order(clocks: Clocks) -> None:
    """The newest counts most."""
    for ms in np.repeat([100, 10], 30).tolist():
        clocks.draft(1, ms)
    follows = Pace(clocks.folder)
    follows.one_batch_is_faster(1, now=False)
    assert follows.draft(1) == pytest.approx(10, abs=1)
