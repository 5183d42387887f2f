"""The engine process's records."""

from pathlib import Path

from worker.minedraft.engine_clock import EngineClock
from worker.minedraft.stages import ENGINE, Stage, StageReader, ring_path


def test_two_calls_in_flight(tmp_path: Path) -> None:
    """The first two calls are scheduled in a row; then results come in between; the last two when all is scheduled."""
    clock = EngineClock(tmp_path)
    for turn in ("s", "su", "su", "u"):
        if "s" in turn:
            with clock.scheduling():
                pass
        if "u" in turn:
            with clock.updating():
                pass
    records = StageReader(ring_path(tmp_path, ENGINE)).read()
    assert records["call"].tolist() == [1, 2, 3, 3]
    scheduled, updated = (records["end"][:, stage] > 0 for stage in (Stage.SCHEDULE, Stage.UPDATE))
    assert scheduled.tolist() == [True, True, True, False]
    assert updated.tolist() == [False, True, True, True]
    assert (records["end"] >= records["begin"]).all()


def test_outside_an_engine_nothing_is_kept() -> None:
    clock = EngineClock(None)
    with clock.scheduling(), clock.updating():
        pass
