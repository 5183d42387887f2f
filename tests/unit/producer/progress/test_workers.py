"""What workers did of late."""

from dataclasses import replace

import pytest

from producer.progress.workers import WINDOW_SECONDS, Crew, Effort, together
from producer.record.fleet import WorkerCard, WorkerStats

CARD = WorkerCard("w", "m", "psd", 2, "ready", "host", 1)


def stats(seconds: float, pace: float = 1.0) -> WorkerStats:
    """Of a worker that does the same in every second."""
    return WorkerStats(
        seconds=seconds,
        answered=int(2 * seconds),
        failed=int(seconds),
        in_flight=7,
        prompt_tokens=int(10 * seconds),
        completion_tokens=int(100 * seconds * pace),
        drafted=int(80 * seconds),
        accepted=int(60 * seconds),
        verify_seconds=0.5 * seconds,
        draft_seconds=0.8 * seconds,
        hidden_seconds=0.4 * seconds,
    )


def card(name: str, said: WorkerStats | None) -> WorkerCard:
    return replace(CARD, worker_id=name, stats=said)


def test_between_two_heartbeats() -> None:
    effort = Effort.between(stats(10), stats(20))
    assert (effort.seconds, effort.rows, effort.prompt_tokens) == (10, 30, 100)
    assert effort.tokens_per_second == pytest.approx(100)
    assert effort.acceptance == pytest.approx(0.75)
    assert effort.overlap == pytest.approx(0.8)  # at most the verifying, which is less than the drafting, could hide


def test_who_drafts_nothing_has_no_shares() -> None:
    effort = Effort.between(WorkerStats(0, 0, 0, 0, 0, 0), WorkerStats(10, 5, 0, 0, 50, 500))
    assert (effort.acceptance, effort.overlap) == (None, None)
    assert effort.tokens_per_second == 50
    assert (Effort().acceptance, Effort().overlap, Effort().tokens_per_second) == (None, None, 0.0)


def test_the_window_moves_on() -> None:
    crew = Crew()
    fast_until = 60
    for second in range(200):
        said = replace(
            stats(second), completion_tokens=100 * min(second, fast_until) + 10 * max(second - fast_until, 0)
        )
        (worker,) = crew.hear([card("a", said)])
        assert worker.effort.seconds <= WINDOW_SECONDS + 1
    assert worker.effort.tokens_per_second == pytest.approx(10)


def test_a_heartbeat_that_is_looked_at_twice_is_one() -> None:
    crew = Crew()
    crew.hear([card("a", stats(10))])
    crew.hear([card("a", stats(12.5))])
    (worker,) = crew.hear([card("a", stats(12.5))])
    assert worker.effort.seconds == 2.5


def test_workers_come_and_go_and_one_of_an_older_version_says_nothing() -> None:
    crew = Crew()
    crew.hear([card("a", stats(10)), card("b", None)])
    first, second = crew.hear([card("b", None), card("a", stats(20))])
    assert (first.card.worker_id, first.effort.seconds) == ("a", 10)
    assert (second.card.worker_id, second.effort) == ("b", Effort())
    assert crew.hear([]) == []
    (back,) = crew.hear([card("a", stats(30))])
    assert back.effort.seconds == 0


def test_together() -> None:
    crew = Crew()
    crew.hear([card("a", stats(10)), card("b", stats(100))])
    whole = together([worker.effort for worker in crew.hear([card("a", stats(20)), card("b", stats(105))])])
    assert (whole.seconds, whole.drafted, whole.accepted) == (10, 1200, 900)
    assert whole.overlap == pytest.approx(0.8)
    assert together([]) == Effort()
