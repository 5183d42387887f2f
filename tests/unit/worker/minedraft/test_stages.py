"""Records of calls, written by one process and read by another."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from worker.minedraft.stages import (
    DRAFTER,
    HEADER,
    MAX_DRAFTS,
    RECORD,
    Records,
    Stage,
    StageClock,
    StageReader,
    ring_path,
    verifier_name,
)

VERIFIER_STAGES = (Stage.RECV, Stage.PREPARE, Stage.FORWARD, Stage.SAMPLE, Stage.SEND)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return ring_path(tmp_path, verifier_name(0))


def write(clock: StageClock, *calls: int) -> None:
    for call in calls:
        clock.begin(call)
        clock.commit()


def read_calls(reader: StageReader) -> list[int]:
    return reader.read()["call"].tolist()


def test_a_file_is_called_after_its_rank(tmp_path: Path) -> None:
    assert ring_path(tmp_path, verifier_name(3)) == tmp_path / "verifier_3.stages"
    assert ring_path(tmp_path, DRAFTER) == tmp_path / "drafter.stages"


def test_a_record_says_when_each_stage_was_and_what_the_batch_held(path: Path) -> None:
    clock, before = StageClock(path), time.monotonic_ns()
    clock.begin(7)
    for stage in VERIFIER_STAGES:
        clock.start(stage)
        clock.stop(stage)
    clock.count(requests=3, tokens=14, prefill=1, asked=4, way=2)
    clock.commit()
    after = time.monotonic_ns()

    (record,) = StageReader(path).read()
    assert record["call"] == 7
    assert (record["requests"], record["tokens"], record["prefill"]) == (3, 14, 1)
    assert (record["asked"], record["way"]) == (4, 2)
    times = [ns for stage in VERIFIER_STAGES for ns in (record["begin"][stage], record["end"][stage])]
    assert [before, *times, after] == sorted([before, *times, after])
    assert record["begin"][Stage.DRAFT] == record["end"][Stage.DRAFT] == 0


def test_drafts_are_counted_by_position(path: Path) -> None:
    clock = StageClock(path)
    clock.begin(1)
    clock.drafts([4, 4, 0, 2, 4], [4, 0, 0, 1, 2])
    clock.commit()
    (record,) = StageReader(path).read()
    assert record["drafted"] == 14
    assert record["drafted_at"].tolist() == [4, 4, 3, 3] + [0] * 12
    assert record["accepted"].tolist() == [3, 2, 1, 1] + [0] * 12


def test_unusual_drafts_are_counted_where_there_is_a_place(path: Path) -> None:
    clock = StageClock(path)
    clock.begin(1)
    clock.drafts([20, 1], [17, -1])  # -1: nothing at all was sampled for this one
    clock.commit()
    clock.begin(2)
    clock.drafts([], [])
    clock.commit()
    many, none = StageReader(path).read()
    assert many["drafted"] == 21
    assert many["drafted_at"].tolist() == [2] + [1] * (MAX_DRAFTS - 1)
    assert many["accepted"].tolist() == [1] * MAX_DRAFTS
    assert not none["drafted"]
    assert not none["drafted_at"].any()


def test_a_call_that_is_not_committed_leaves_nothing(path: Path) -> None:
    clock, reader = StageClock(path), StageReader(path)
    clock.begin(1)
    clock.start(Stage.RECV)
    clock.count(requests=9, tokens=9, prefill=9, asked=9, way=1)
    clock.drafts([1], [1])
    assert not len(reader.read())
    clock.begin(2)
    clock.commit()
    (record,) = reader.read()
    assert record["call"] == 2
    assert not any(np.any(record[field]) for field in RECORD.names if field != "call")


def test_each_read_gives_what_is_new_in_order(path: Path) -> None:
    clock, reader = StageClock(path, capacity=8), StageReader(path)
    seen = []
    for first in range(0, 30, 5):
        write(clock, *range(first, first + 5))
        seen += read_calls(reader)
    assert seen == list(range(30))
    assert read_calls(reader) == []
    assert reader.lost == 0


def test_what_was_overwritten_is_counted(path: Path) -> None:
    clock, reader = StageClock(path, capacity=8), StageReader(path)
    write(clock, 0)
    assert read_calls(reader) == [0]
    write(clock, *range(1, 101))
    # Seven, not eight: of the oldest one in the ring nobody can tell whether it is being overwritten right now.
    assert read_calls(reader) == list(range(94, 101))
    assert reader.lost == 93
    write(clock, 101)
    assert read_calls(reader) == [101]
    assert reader.lost == 93


@pytest.mark.parametrize(("meanwhile", "intact"), [(0, [0, 1, 2, 3, 4]), (4, [2, 3, 4]), (6, [4]), (50, [])])
def test_what_is_overwritten_while_it_is_copied_is_not_given(path: Path, meanwhile: int, intact: list[int]) -> None:
    clock = StageClock(path, capacity=8)

    class Interrupted(StageReader):
        def _copy(self, slots: Records, first: int, end: int) -> Records:
            records = super()._copy(slots, first, end)
            write(clock, *range(end, end + meanwhile))
            return records

    reader = Interrupted(path)
    write(clock, *range(5))
    assert read_calls(reader) == intact
    assert reader.lost == 5 - len(intact)


def test_a_file_may_come_later(path: Path) -> None:
    reader = StageReader(path)
    assert not len(reader.read())
    write(StageClock(path), 1, 2)
    assert read_calls(reader) == [1, 2]


def test_a_half_created_file_has_no_records_yet(path: Path, tmp_path: Path) -> None:
    write(StageClock(tmp_path / "whole", capacity=4), 1)
    whole = (tmp_path / "whole").read_bytes()
    reader = StageReader(path)
    half = np.frombuffer(whole, HEADER, count=1).copy()
    half["capacity"] = 0
    for content in (b"", whole[:10], bytes(len(whole)), half.tobytes() + whole[HEADER.itemsize :]):
        path.write_bytes(content)
        assert not len(reader.read())
    path.write_bytes(whole)
    assert read_calls(reader) == [1]


@pytest.mark.parametrize(("field", "value"), [("magic", b"other"), ("version", 0), ("record_bytes", 8)])
def test_a_ring_of_another_version_is_refused(path: Path, field: str, value: object) -> None:
    StageClock(path)
    np.memmap(path, HEADER, "r+", shape=1)[field] = value
    with pytest.raises(ValueError, match="not a ring"):
        StageReader(path).read()


def test_a_ring_that_is_made_anew_is_followed_when_the_old_one_has_been_read(path: Path) -> None:
    old, reader = StageClock(path), StageReader(path)
    write(old, 1)
    assert read_calls(reader) == [1]
    write(old, 2)
    new = StageClock(path)
    write(new, 10, 11)
    assert read_calls(reader) == [2, 10, 11]
    write(old, 3)
    write(new, 12)
    assert read_calls(reader) == [12], "nobody writes the old one any more"
    assert read_calls(StageReader(path)) == [10, 11, 12]
    assert reader.lost == 0


def test_a_ring_that_is_half_made_anew_is_followed_later(path: Path, tmp_path: Path) -> None:
    write(StageClock(tmp_path / "new", capacity=4), 10)
    new = (tmp_path / "new").read_bytes()
    old, reader = StageClock(path), StageReader(path)
    write(old, 1)
    assert read_calls(reader) == [1]
    write(old, 2)
    path.unlink()
    path.write_bytes(bytes(len(new)))
    assert read_calls(reader) == [2]
    assert read_calls(reader) == []
    path.write_bytes(new)
    assert read_calls(reader) == [10]


def test_what_is_lost_of_several_rings_adds_up(path: Path) -> None:
    reader = StageReader(path)
    for lost in (5, 10, 15):
        write(StageClock(path, capacity=8), *range(12))
        assert read_calls(reader) == list(range(5, 12))
        assert reader.lost == lost


def test_a_clock_leaves_the_ring_before_to_those_who_read_it(path: Path) -> None:
    """Who has it mapped must not crash."""
    write(StageClock(path), 1)
    mapped = np.memmap(path, np.uint8, "r")
    before = mapped.tobytes()
    StageClock(path)
    assert mapped.tobytes() == before


def test_a_call_may_get_its_number_late(path: Path) -> None:
    clock = StageClock(path)
    clock.begin(1)
    clock.start(Stage.SCHEDULE)
    clock.call(5)
    clock.commit()
    (record,) = StageReader(path).read()
    assert record["call"] == 5
    assert record["begin"][Stage.SCHEDULE] > 0


def test_what_was_committed_survives_kill_9(path: Path) -> None:
    code = f"""if True:
        import os, pathlib, signal
        from worker.minedraft.stages import StageClock
        clock = StageClock(pathlib.Path({str(path)!r}))
        for call in (1, 2, 3):
            clock.begin(call)
            clock.commit()
        clock.begin(4)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert read_calls(StageReader(path)) == [1, 2, 3]


def test_a_writer_does_not_mind_that_its_file_is_gone(path: Path) -> None:
    clock, reader = StageClock(path), StageReader(path)
    write(clock, 1)
    assert read_calls(reader) == [1]
    path.unlink()
    write(clock, 2)
    assert read_calls(reader) == [2]


def test_a_clock_without_a_file_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clock = StageClock(None)
    clock.begin(1)
    clock.start(Stage.RECV)
    clock.stop(Stage.RECV)
    clock.count(requests=1, tokens=1, prefill=0)
    clock.drafts([1], [1])
    clock.commit()
    assert not list(tmp_path.iterdir())


def test_the_room_is_taken_when_the_file_is_made(path: Path) -> None:
    """A full disk must not kill the process later, at a write into memory."""
    StageClock(path, capacity=1000)
    assert path.stat().st_blocks * 512 >= path.stat().st_size >= 1000 * RECORD.itemsize


def test_a_file_that_cannot_be_made_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        StageClock(tmp_path / "missing" / "drafter.stages")


def test_a_record_costs_next_to_nothing(path: Path) -> None:
    clock, costs = StageClock(path), []
    scheduled, accepted = [4] * 256, [request % 5 for request in range(256)]
    for call in range(500):
        begin = time.perf_counter_ns()
        clock.begin(call)
        for stage in VERIFIER_STAGES:
            clock.start(stage)
            clock.stop(stage)
        clock.count(requests=256, tokens=1280, prefill=0)
        clock.drafts(scheduled, accepted)
        clock.commit()
        costs.append(time.perf_counter_ns() - begin)
    median_us = statistics.median(costs) / 1000
    print(f"a record of 256 requests costs {median_us:.1f} us")
    assert median_us < 100
