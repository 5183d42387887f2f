"""Messages between real processes over gloo, and what happens when they do not come."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from link_ranks import RankProcess, connect

from worker.minedraft.link import MAX_OUTSTANDING, REJECTED, LinkError

#: Never waited for to its end.
LONG_S = 100.0
SHORT_S = 1.0

Ranks = Callable[[int], list[RankProcess]]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """So many processes that live; they are used again, for starting one takes seconds."""
    started: list[RankProcess] = []

    def living(count: int) -> list[RankProcess]:
        for gone in [rank for rank in started if not rank.process.is_alive()]:
            started.remove(gone)
        while len(started) < count:
            started.append(RankProcess())
        return started[:count]

    yield living
    for rank in started:
        rank.end()


def test_ids_arrive_in_both_directions_and_in_order(ranks: Ranks, tmp_path: Path) -> None:
    first, second, drafter = connected = ranks(3)
    assert connect(connected, tmp_path, LONG_S) == [None] * 3

    first.do("send_sampled", [[1, 2, 3, 4]])
    first.do("send_sampled", [[5, 6], [7, REJECTED]])
    drafter.do("send_drafts", [[11, 12, 13]])
    drafter.do("send_drafts", [[14, 15, 16], [17, 18, 19]])

    assert drafter.do("recv_sampled", 1) == [[1, 2, 3, 4]]
    narrow = [[5, 6, REJECTED, REJECTED], [7, REJECTED, REJECTED, REJECTED]]
    assert drafter.do("recv_sampled", 2) == narrow
    for verifier in (second, first):
        assert verifier.do("recv_drafts", 1) == [[11, 12, 13]]
        assert verifier.do("recv_drafts", 2) == [[14, 15, 16], [17, 18, 19]]


def test_what_is_expected_is_taken_early_and_in_order(ranks: Ranks, tmp_path: Path) -> None:
    first, drafter = connected = ranks(2)
    connect(connected, tmp_path, LONG_S)
    drafter.do("expect_sampled", 1)
    drafter.do("expect_sampled", 2)
    first.do("expect_drafts", 1)
    first.do("send_sampled", [[1, 2, 3, 4]])
    first.do("send_sampled", [[5, 6, 7, 8], [9, 10, 11, 12]])
    drafter.do("send_drafts", [[21, 22, 23]])
    assert drafter.do("recv_sampled", 1) == [[1, 2, 3, 4]]
    assert drafter.do("recv_sampled", 2) == [[5, 6, 7, 8], [9, 10, 11, 12]]
    assert first.do("recv_drafts", 1) == [[21, 22, 23]]


def test_an_expected_message_that_never_comes_is_an_error_at_the_deadline(ranks: Ranks, tmp_path: Path) -> None:
    connected = ranks(2)
    connect(connected, tmp_path, SHORT_S)
    connected[0].do("expect_drafts", 1)
    assert isinstance(connected[0].do("recv_drafts", 1), LinkError)


def test_as_many_sends_as_may_be_under_way_wait_for_nobody(ranks: Ranks, tmp_path: Path) -> None:
    first, _, drafter = connected = ranks(3)
    connect(connected, tmp_path, LONG_S)
    rows = [[token] * 4 for token in range(256)]  # as large as messages get
    for _ in range(MAX_OUTSTANDING):
        first.do("send_sampled", rows)
        drafter.do("send_drafts", [row[:3] for row in rows])
    for _ in range(MAX_OUTSTANDING):
        assert drafter.do("recv_sampled", 256) == rows


def test_a_message_that_never_comes_is_waited_for_until_the_deadline(ranks: Ranks, tmp_path: Path) -> None:
    first, drafter = connected = ranks(2)
    connect(connected, tmp_path, SHORT_S)
    for rank, method in ((first, "recv_drafts"), (drafter, "recv_sampled")):
        rank.begin(method, 1)
    for rank in connected:
        value, seconds = rank.result()
        assert isinstance(value, LinkError)
        assert SHORT_S * 0.9 < seconds < LONG_S / 10


def test_ranks_that_do_not_all_come_give_up_at_the_deadline(ranks: Ranks, tmp_path: Path) -> None:
    came = connect(ranks(2), tmp_path, SHORT_S, missing=1)
    for value in came:
        assert isinstance(value, LinkError)
        assert "did not meet within 1 s" in str(value)


@pytest.mark.parametrize(("victim", "method"), [(-1, "recv_drafts"), (0, "recv_sampled")])
def test_a_peer_that_is_killed_is_missed_at_once(victim: int, method: str, ranks: Ranks, tmp_path: Path) -> None:
    connected = ranks(2)
    connect(connected, tmp_path, LONG_S)
    dying, waiting = connected[victim], connected[victim + 1]
    waiting.begin(method, 1)
    dying.end()
    value, seconds = waiting.result()
    assert isinstance(value, LinkError)
    assert "did not send a message" in str(value)
    assert seconds < LONG_S / 10
