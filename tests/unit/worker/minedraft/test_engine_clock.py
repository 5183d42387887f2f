"""The engine process's records."""

from collections.abc import Iterable
from pathlib import Path

from worker.minedraft.engine_clock import EngineClock
from worker.minedraft.stages import ENGINE, Records, Stage, StageReader, ring_path


def turns(clock: EngineClock, numbers: Iterable[int | None]) -> None:
    """Turns of the engine's loop; of each, the call that is scheduled, or None, and then a result is taken in.

    A number below 0: nothing is taken in.
    """
    for number in numbers:
        if number is not None:
            with clock.scheduling() as numbered:
                numbered(abs(number))
        if number is None or number > 0:
            with clock.updating():
                pass


def records(folder: Path) -> Records:
    return StageReader(ring_path(folder, ENGINE)).read()


def test_two_calls_in_flight(tmp_path: Path) -> None:
    """The first two calls are scheduled in a row; then results come in between; the last two when all is scheduled."""
    turns(EngineClock(tmp_path), [-1, 2, 3, None])
    written = records(tmp_path)
    assert written["call"].tolist() == [1, 2, 3, 3]
    scheduled, updated = (written["end"][:, stage] > 0 for stage in (Stage.SCHEDULE, Stage.UPDATE))
    assert scheduled.tolist() == [True, True, True, False]
    assert updated.tolist() == [False, True, True, True]
    assert (written["end"] >= written["begin"]).all()


def test_a_record_has_the_number_that_was_said(tmp_path: Path) -> None:
    """Where one batch is alone numbers are left out."""
    turns(EngineClock(tmp_path), [1, 3, 5, -6, 7, None])
    assert records(tmp_path)["call"].tolist() == [1, 3, 5, 6, 7, 7]


def test_outside_an_engine_nothing_is_kept() -> None:
    clock = EngineClock(None)
    with clock.scheduling() as numbered, clock.updating():
        numbered(1)
