"""Ranks that die while an executor starts them, without processes."""

import pytest

from worker.minedraft import executor


class Rank:
    """A process that is starting."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.exitcode: int | None = None
        self.killed = False

    def kill(self) -> None:
        self.killed = True


class Start:
    """A start that is watched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drafter = Rank("VllmWorker-0")
        self.verifiers = [Rank("VllmWorker-0"), Rank("VllmWorker-1")]
        monkeypatch.setattr(executor, "_WATCH_S", 0.001)
        monkeypatch.setattr("multiprocessing.active_children", lambda: [self.drafter, *self.verifiers])
        self.watch = executor._StartWatch(self.drafter)  # type: ignore[arg-type]

    def to_its_end(self) -> str | None:
        """Who has died, when the watch has seen to it."""
        self.watch.end()
        assert all(rank.killed for rank in (self.drafter, *self.verifiers))
        return self.watch.died


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    return Start(monkeypatch)


@pytest.mark.parametrize(
    ("rank", "code", "words"),
    [
        (-1, -9, "minedraft::drafter was killed by signal 9"),
        (0, 1, "minedraft::verifier_0 ended with exit code 1"),
        (1, 0, "minedraft::verifier_1 ended with exit code 0"),
    ],
)
def test_a_rank_that_dies_while_all_start_ends_the_others_and_is_named(
    rank: int, code: int, words: str, start: Start
) -> None:
    [*start.verifiers, start.drafter][rank].exitcode = code
    assert start.to_its_end() == words


def test_a_start_that_hangs_after_a_death_is_ended(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that waits for the greeting of a rank that was killed just before it could send it never returns."""
    exits: list[int] = []
    monkeypatch.setattr(executor, "_HANG_S", 0.001)
    monkeypatch.setattr("os._exit", exits.append)
    start.drafter.exitcode = -9
    start.watch._thread.join(10)
    assert exits == [1]


def test_when_the_start_is_over_nobody_is_killed(start: Start) -> None:
    start.watch.end()
    assert start.watch.died is None
    assert not any(rank.killed for rank in (start.drafter, *start.verifiers))
