"""What the engine's processes tell each other of the drafter."""

import subprocess
import sys
from pathlib import Path

import pytest

from worker.minedraft.presence import FILE, Presence, State


def seen(presence: Presence) -> tuple[State, int, int, bool, bool]:
    return presence.state, presence.losses, presence.joins, presence.given_up, presence.drafting


def test_at_first_there_is_none(tmp_path: Path) -> None:
    assert seen(Presence(tmp_path)) == (State.ABSENT, 0, 0, False, False)


@pytest.mark.parametrize(
    ("state", "drafting"),
    [(State.ABSENT, False), (State.WAITING, False), (State.JOINING, True), (State.PRESENT, True)],
)
def test_rows_have_drafts_from_the_moment_when_it_joins(state: State, drafting: bool, tmp_path: Path) -> None:
    writer, reader = Presence(tmp_path), Presence(tmp_path)
    writer.state = state
    assert reader.state is state
    assert reader.drafting is drafting


def test_all_who_look_see_a_loss_and_a_join(tmp_path: Path) -> None:
    executor, first_verifier, metrics = (Presence(tmp_path) for _ in range(3))
    executor.state = State.PRESENT
    first_verifier.give_up()
    assert seen(metrics) == (State.PRESENT, 0, 0, True, True)
    executor.lose()
    assert seen(metrics) == (State.ABSENT, 1, 0, True, False)
    executor.join()
    assert seen(metrics) == seen(executor) == seen(first_verifier) == (State.PRESENT, 1, 1, False, True)


@pytest.mark.parametrize("state", [State.ABSENT, State.WAITING, State.JOINING])
def test_one_that_never_took_part_is_no_loss(state: State, tmp_path: Path) -> None:
    presence = Presence(tmp_path)
    presence.state = state
    presence.lose()
    assert seen(presence) == (State.ABSENT, 0, 0, False, False)


def test_who_comes_later_changes_nothing(tmp_path: Path) -> None:
    first = Presence(tmp_path)
    first.state = State.PRESENT
    first.lose()
    first.state = State.WAITING
    assert seen(Presence(tmp_path)) == (State.WAITING, 1, 0, False, False)


def test_another_process_sees_it_and_is_seen(tmp_path: Path) -> None:
    presence = Presence(tmp_path)
    presence.state = State.WAITING
    code = f"""if True:
        import os, pathlib, signal
        from worker.minedraft.presence import Presence, State
        presence = Presence(pathlib.Path({str(tmp_path)!r}))
        assert presence.state is State.WAITING
        presence.state = State.JOINING
        presence.join()
        presence.give_up()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9, "what it said outlives it"
    assert seen(presence) == (State.PRESENT, 0, 1, True, True)


def test_outside_an_engine_there_is_one_and_each_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, another = Presence(None), Presence(None)
    assert seen(one) == (State.PRESENT, 0, 0, False, True)
    one.lose()
    assert seen(one) == (State.ABSENT, 1, 0, False, False)
    assert seen(another) == (State.PRESENT, 0, 0, False, True)
    assert not list(tmp_path.iterdir())


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    Presence(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Presence(tmp_path / "missing")
