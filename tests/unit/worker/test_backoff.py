"""Waiting longer after every failure."""

from worker.backoff import Backoff


def test_delays_double_up_to_the_most_with_jitter() -> None:
    backoff = Backoff(first=1.0, most=8.0)
    for expected in (1, 2, 4, 8, 8, 8):
        assert expected / 2 <= backoff.next() <= expected
    backoff.reset()
    assert backoff.next() <= 1.0
