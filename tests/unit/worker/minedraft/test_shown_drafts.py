"""What the first verifier shows of its drafts, and how the engine process waits for it."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.minedraft.shown_drafts import FILE, NotShownError, ShownDrafts

MOST = 12
DRAFTS = {"a": [5, 6, 7], "b": [8], "c": [9, 10]}
PLACEHOLDERS = {"a": [-1] * 3, "b": [-1], "c": [-1] * 2}


@pytest.fixture
def shown(tmp_path: Path) -> tuple[ShownDrafts, ShownDrafts]:
    """The first verifier's and the engine process's."""
    return ShownDrafts(tmp_path, MOST), ShownDrafts(tmp_path, MOST)


def test_the_engine_sees_what_the_verifier_shows(shown: tuple[ShownDrafts, ShownDrafts]) -> None:
    verifier, engine = shown
    verifier.show(1, DRAFTS)
    assert engine.wait(1, PLACEHOLDERS, 1) == DRAFTS
    verifier.show(3, {"b": [1]})
    assert engine.wait(3, {"b": [-1]}, 1) == {"b": [1]}


rows = st.lists(st.integers(0, 2**31 - 1), max_size=4)


@given(calls=st.lists(st.dictionaries(st.text(max_size=3), rows, max_size=5), min_size=1, max_size=5))
def test_every_row_of_every_call_comes_as_it_was(calls: list[dict[str, list[int]]]) -> None:
    memory = ShownDrafts(None, 20)
    for number, drafts in enumerate(calls, 1):
        memory.show(number, drafts)
        assert memory.wait(number, {name: [-1] * len(row) for name, row in drafts.items()}, 1) == drafts


def test_the_engine_waits_until_that_very_call_is_shown(shown: tuple[ShownDrafts, ShownDrafts]) -> None:
    verifier, engine = shown
    verifier.show(1, {"a": [1, 1, 1]})
    later = threading.Timer(0.05, verifier.show, (2, DRAFTS))
    start = time.monotonic()
    later.start()
    assert engine.wait(2, PLACEHOLDERS, 10) == DRAFTS
    assert time.monotonic() - start >= 0.05
    later.join()


def test_drafts_that_never_come_are_an_error(shown: tuple[ShownDrafts, ShownDrafts]) -> None:
    verifier, engine = shown
    verifier.show(1, DRAFTS)
    with pytest.raises(NotShownError, match=r"drafts of call 2 for 0.01 s"):
        engine.wait(2, PLACEHOLDERS, 0.01)


def test_who_waits_gives_up_when_the_engine_is_ending(shown: tuple[ShownDrafts, ShownDrafts], tmp_path: Path) -> None:
    _, engine = shown
    threading.Timer(0.05, ShownDrafts(tmp_path, MOST).end).start()
    with pytest.raises(NotShownError, match="the engine is ending: nobody shows the drafts of call 1"):
        engine.wait(1, PLACEHOLDERS, 10)


def test_another_process_shows_them(tmp_path: Path) -> None:
    engine = ShownDrafts(tmp_path, MOST)
    code = f"""
from pathlib import Path
from worker.minedraft.shown_drafts import ShownDrafts
ShownDrafts(Path({str(tmp_path)!r}), {MOST}).show(7, {DRAFTS!r})
"""
    with subprocess.Popen([sys.executable, "-c", code]) as verifier:
        assert engine.wait(7, PLACEHOLDERS, 60) == DRAFTS
        assert verifier.wait(60) == 0


def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    ShownDrafts(tmp_path, MOST)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_its_room_is_there_from_the_start(tmp_path: Path) -> None:
    """A page that finds no room when it is written kills the process."""
    ShownDrafts(tmp_path, 100_000)
    assert (tmp_path / FILE).stat().st_blocks * 512 >= 400_000
