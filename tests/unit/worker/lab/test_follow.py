"""Engines are found by the rings they have open; followed from now on; and kept in files."""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from timelines import two_batches

from worker.lab import follow as module
from worker.lab.follow import StageLog, choose, engines, follow, load, save
from worker.lab.timeline import FIRST, TraceError
from worker.minedraft.stages import DRAFTER, RECORD, Stage, StageClock, ring_path


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "_EVERY_S", 0.02)
    return tmp_path


def engine(folder: Path, name: str, made: int) -> tuple[Path, StageClock]:
    """The folder of an engine whose verifier is this process, while the clock is kept."""
    path = folder / name
    path.mkdir()
    clock = StageClock(ring_path(path, FIRST), capacity=16)
    os.utime(path, (made, made))
    return path, clock


def write(clock: StageClock, call: int) -> None:
    clock.begin(call)
    clock.start(Stage.PREPARE)
    clock.stop(Stage.SAMPLE)
    clock.commit()


@pytest.fixture
def writing(temporary: Path) -> Iterator[Path]:
    """An engine that is at work: its verifier has done calls 1 to 3, does more, and its drafter joins at call 10."""
    path, clock = engine(temporary, "minedraft-busy", 1)
    for call in range(1, 4):
        write(clock, call)
    stop = threading.Event()

    def work() -> None:
        drafter = None
        for call in range(4, 1000):
            if stop.wait(0.03):
                return
            write(clock, call)
            if call >= 10:
                drafter = drafter or StageClock(ring_path(path, DRAFTER))
                write(drafter, call)

    thread = threading.Thread(target=work)
    thread.start()
    yield path
    stop.set()
    thread.join()


def test_engines_are_the_folders_with_open_rings_newest_first(temporary: Path) -> None:
    old, old_clock = engine(temporary, "minedraft-old", 1)
    new, new_clock = engine(temporary, "minedraft-new", 2)
    other, other_clock = engine(temporary, "another-program", 3)
    (temporary / "minedraft-without-rings").mkdir()
    (temporary / "minedraft-dead").mkdir()
    (temporary / "minedraft-dead" / "verifier_0.stages").write_bytes(bytes(99))
    assert engines() == [new, old]
    assert choose(other) == other
    del old_clock, new_clock, other_clock


def test_the_only_engine_is_chosen(temporary: Path) -> None:
    with pytest.raises(TraceError, match="no engine"):
        choose(None)
    first, clock = engine(temporary, "minedraft-1", 1)
    assert choose(None) == first
    second, another = engine(temporary, "minedraft-2", 2)
    with pytest.raises(TraceError, match=f"which one\\? {second}, {first}$"):
        choose(None)
    assert choose(first) == first
    del clock, another


def test_a_folder_without_rings_is_no_engine(temporary: Path) -> None:
    with pytest.raises(TraceError, match="no engine's folder"):
        choose(temporary)


def test_following_sees_what_happens_from_now_on(writing: Path) -> None:
    before = time.monotonic_ns()
    records = follow(writing, 0.6)
    assert records.keys() == {FIRST, DRAFTER}
    calls = records[FIRST]["call"]
    assert calls[0] >= 4
    assert len(calls) > 3
    assert calls.tolist() == list(range(calls[0], calls[-1] + 1))
    assert (records[FIRST]["end"][:, Stage.SAMPLE] > before).all()
    drafted = records[DRAFTER]["call"]
    assert drafted.tolist() == list(range(10, drafted[-1] + 1))


def test_a_log_keeps_many_times_what_a_ring_holds_while_it_is_read_now_and_then(temporary: Path) -> None:
    path, clock = engine(temporary, "minedraft-long", 1)
    log = StageLog()
    log.follow(path)
    for call in range(1, 1001):
        write(clock, call)
        if call % 15 == 0:
            log.update()
    assert log.take()[FIRST]["call"].tolist() == list(range(1, 1001))
    assert len(log.take()[FIRST]) == 0


def test_an_idle_engine_is_an_error(temporary: Path) -> None:
    path, clock = engine(temporary, "minedraft-idle", 1)
    write(clock, 1)
    with pytest.raises(TraceError, match=r"nothing happened in 0\.1 s"):
        follow(path, 0.1)


def test_a_ring_of_another_version_is_an_error(temporary: Path) -> None:
    path, clock = engine(temporary, "minedraft-other", 1)
    del clock
    ring = ring_path(path, FIRST)
    ring.write_bytes(b"MDSTAGE?" + ring.read_bytes()[8:])
    with pytest.raises(TraceError, match="not a ring"):
        follow(path, 0.1)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    records, path = two_batches(), tmp_path / "a trace"
    save(path, records, {"title": "a pair", "virtual": True})
    loaded, meta = load(path)
    assert meta == {"title": "a pair", "virtual": True}
    assert loaded.keys() == records.keys()
    assert all((loaded[rank] == records[rank]).all() for rank in records)


@pytest.mark.parametrize("content", [b"", b"words", b"PK\x03\x04 not really"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="no file of stage records"):
        load(path)


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    np.savez(path, verifier_0=np.zeros(3, RECORD))
    with pytest.raises(TraceError, match="no file of stage records"):
        load(path)
    np.savez(path, verifier_0=np.zeros(3), meta=np.array('{"title": "", "virtual": false}'))
    with pytest.raises(TraceError, match="another version"):
        load(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(TraceError, match="no file of stage records"):
        load(tmp_path / "one.npy")
