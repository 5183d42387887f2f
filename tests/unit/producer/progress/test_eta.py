"""When a job will be done: jobs that are simulated, looked at four times a second."""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from producer.progress import eta
from producer.progress.pace import Pace

LOOK_SECONDS = 0.25
ROWS = 1920  # whole bursts: nobody can know that the last one is a smaller one

#: How many rows have ended at a time.
Job = Callable[[float], float]


def steady(rate: float) -> Job:
    return lambda at: int(rate * at)


def bursts(rows: int, every: float) -> Job:
    return lambda at: rows * int(at / every)


def several(workers: int, rows: int, every: float, seed: int) -> Job:
    """Workers whose bursts come at times of their own, each a little longer or shorter than the last."""
    dice = random.Random(seed)
    ends: list[float] = []
    for _ in range(workers):
        at = dice.uniform(0, every)
        while at < 10_000:
            ends.append(at)
            at += every * dice.uniform(0.8, 1.2)
    ends.sort()
    return lambda at: rows * sum(end <= at for end in ends)


def watched(job: Job, *, rows: int = ROWS, start: float = 0.0) -> Iterator[tuple[float, float, float | None]]:
    """(seconds since the watching began, the time that was really left, the time that was said)."""
    pace, at = Pace(), start
    seen: list[tuple[float, float | None]] = []
    while (done := min(job(at), rows)) < rows:
        pace.see(at, done)
        seen.append((at, eta.seconds_left(pace, at, done=int(done), rows=rows)))
        at += LOOK_SECONDS
    return ((when - start, at - when, said) for when, said in seen)


@pytest.mark.parametrize(
    "job",
    [
        steady(10),
        steady(1.7),
        steady(333),
        bursts(16, 3),
        bursts(16, 20),
        bursts(64, 45),
    ],
)
@pytest.mark.parametrize("start", [0.0, 7.1])
def test_at_a_constant_rate_it_is_right_from_a_fifth_of_the_job_on(job: Job, start: float) -> None:
    rows = ROWS if job(100) < 10_000 else 38_400
    seen = list(watched(job, rows=rows, start=start))
    whole = seen[-1][0]
    for at, left, said in seen:
        if at >= 0.2 * whole and left > 0.02 * whole:
            assert said is not None
            assert abs(said - left) <= 0.1 * left + 0.01 * whole, (at, left, said)


@pytest.mark.parametrize("seed", range(8))
def test_several_workers_whose_shards_end_at_random_hardly_disturb_it(seed: int) -> None:
    every = 20
    seen = list(watched(several(4, 16, every, seed)))
    whole = seen[-1][0]
    for at, left, said in seen:
        if at >= 0.2 * whole:
            assert said is not None
            assert abs(said - left) <= 0.15 * left + every / 2, (at, left, said)


@pytest.mark.parametrize(
    ("job", "most"),
    [(bursts(16, 20), 0.01), (bursts(64, 45), 0.01), *((several(4, 16, 20, seed), 0.3) for seed in range(8))],
)
def test_it_does_not_jump(job: Job, most: float) -> None:
    seen = [(left, said) for _, left, said in watched(job) if said is not None]
    for (left, said), (_, following) in pairwise(seen):
        assert abs(following - said) <= most * left + 10, (left, said, following)


def test_before_enough_rows_have_ended_nothing_is_said() -> None:
    said = [(at, said) for at, _, said in watched(bursts(4, 10), rows=400)]
    first = next(at for at, said in said if said is not None)
    assert 4 * int(first / 10) >= 16


def test_a_job_without_a_move_is_not_stalled_but_unknown() -> None:
    pace = Pace()
    for at in range(1000):
        pace.see(at, 0)
    assert eta.seconds_left(pace, 1000, done=0, rows=10) is None
    assert not pace.stalled(1000)


def test_a_job_that_slows_down_is_believed() -> None:
    def two_phases(at: float) -> float:
        return 20 * at if at < 30 else 600 + 5 * (at - 30)

    late = [(left, said) for at, left, said in watched(two_phases, rows=3000) if at > 30 + 4 * 30]
    assert late
    for left, said in late:
        assert said is not None
        assert said == pytest.approx(left, rel=0.25, abs=2)


def test_a_stall_has_no_end_in_sight_and_leaves_the_pace_as_it_was() -> None:
    def stops_for_a_while(at: float) -> float:
        return 10 * min(at, 60) + 10 * max(at - 180, 0)

    seen = list(watched(stops_for_a_while))
    assert all(said is None for at, _, said in seen if 60 + 16 < at < 180)
    for at, left, said in seen:
        if at > 182:
            assert said == pytest.approx(left, rel=0.1, abs=1)


def test_rows_that_are_retried_begin_anew() -> None:
    pace = Pace()
    for at in range(100):
        pace.see(at, 10 * at)
    pace.see(100, 500)
    for at in range(101, 110):
        pace.see(at, 500 + 10 * (at - 100))
    assert pace.at(109) == pytest.approx(10)
    assert eta.seconds_left(pace, 109, done=590, rows=1000) == pytest.approx(41, abs=1)


def test_what_is_there_already_is_no_progress() -> None:
    pace = Pace()
    for at in range(60):
        pace.see(at, 100_000 + at)
    assert pace.at(60) == pytest.approx(1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "5 s"),
        (1.2, "5 s"),
        (38.4, "40 s"),
        (58, "about 1 min"),
        (95, "about 2 min"),
        (170, "about 3 min"),
        (3560, "about 59 min"),
        (3590, "1 h"),
        (7800, "2 h 10 min"),
        (7000, "2 h"),
        (86_380, "24 h"),
        (273_600, "3 d 4 h"),
        (259_200, "3 d"),
    ],
)
def test_words(seconds: float, words: str) -> None:
    assert eta.words(seconds) == words
