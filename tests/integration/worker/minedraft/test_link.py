"""Messages between real processes over gloo, and what happens when they do not come."""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep

import pytest
from link_ranks import DRAFTS, RankProcess, connect, rejoin, start

from worker.minedraft.link import MAX_OUTSTANDING, REJECTED, LinkError
from worker.minedraft.relay import NO_DRAFT

#: Never waited for to its end.
LONG_S = 100.0
SHORT_S = 1.5
#: A death is noticed by then, on a busy machine (seconds).
AT_ONCE_S = 2.0

NONE = [[NO_DRAFT] * DRAFTS]

Ranks = Callable[[int], list[RankProcess]]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """So many processes that live; they are used again, for starting one takes seconds."""
    started: list[RankProcess] = []

    def living(count: int) -> list[RankProcess]:
        for rank in [rank for rank in started if rank.asked or not rank.process.is_alive()]:
            rank.end()
            started.remove(rank)
        while len(started) < count:
            started.append(RankProcess())
        for rank in started:
            rank.do("lost")  # it is up
        return started[:count]

    yield living
    for rank in started:
        rank.end()


def test_ids_arrive_in_both_directions_and_in_order(ranks: Ranks, tmp_path: Path) -> None:
    first, drafter = connected = ranks(2)
    assert connect(connected, tmp_path, LONG_S) == [None] * 2

    first.do("send_sampled", [[1, 2, 3, 4]])
    first.do("send_sampled", [[5, 6], [7, REJECTED]])
    drafter.do("send_drafts", [[11, 12, 13]])
    drafter.do("send_drafts", [[14, 15, 16], [17, 18, 19]])

    assert drafter.do("recv_sampled", 1) == [[1, 2, 3, 4]]
    narrow = [[5, 6, REJECTED, REJECTED], [7, REJECTED, REJECTED, REJECTED]]
    assert drafter.do("recv_sampled", 2) == narrow
    assert first.do("recv_drafts", 1) == [[11, 12, 13]]
    assert first.do("recv_drafts", 2) == [[14, 15, 16], [17, 18, 19]]


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


def test_proposals_arrive_as_they_are(ranks: Ranks, tmp_path: Path) -> None:
    first, drafter = connected = ranks(2)
    connect(connected, tmp_path, LONG_S)
    rows = [[[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]], [[0.125, 0.875], [0.0, 1.0], [0.5, 0.5]]]
    first.do("expect_drafts", 3)
    first.do("expect_proposals", 2, 2)
    drafter.do("send_drafts", [[21, 22, 23]] * 3)
    drafter.do("send_proposals", rows)
    assert first.do("recv_drafts", 3) == [[21, 22, 23]] * 3
    assert first.do("recv_proposals", 2, 2) == rows


def test_an_expected_message_that_never_comes_is_an_error_at_the_deadline(ranks: Ranks, tmp_path: Path) -> None:
    connected = ranks(2)
    connect(connected, tmp_path, SHORT_S)
    connected[0].do("expect_drafts", 1)
    assert isinstance(connected[0].do("recv_drafts", 1), LinkError)


def test_as_many_sends_as_may_be_under_way_wait_for_nobody(ranks: Ranks, tmp_path: Path) -> None:
    first, drafter = connected = ranks(2)
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


def test_who_comes_alone_gives_up_at_the_deadline(ranks: Ranks, tmp_path: Path) -> None:
    alone = ranks(1)
    (value,) = connect(alone, tmp_path, SHORT_S)
    assert isinstance(value, LinkError)
    assert "did not meet within 1.5 s" in str(value)


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


def started(ranks: Ranks, folder: Path, deadline_s: float) -> list[RankProcess]:
    """Two verifiers and a drafter."""
    met = ranks(3)
    assert start(met, folder, deadline_s) == [None] * 3
    return met


def test_all_verifiers_get_the_drafts_that_the_first_one_gets(ranks: Ranks, tmp_path: Path) -> None:
    first, other, drafter = started(ranks, tmp_path, LONG_S)
    messages = [[[1, 2, 3]], [[4, 5, 6], [7, 8, 9]], [[10, 11, 12]] * 256]
    for message in messages[:2]:
        drafter.do("send_drafts", message)
    for message in messages:
        other.begin("recv_drafts", len(message))
        if message is messages[2]:
            drafter.do("send_drafts", message)
        assert first.do("recv_drafts", len(message)) == message
        assert other.result()[0] == message
    assert first.do("lost") == []


def no_drafts(first: RankProcess, other: RankProcess) -> float:
    """Let both verifiers find that there are no drafts; how long the first one took (seconds)."""
    first.begin("recv_drafts", 1)
    other.begin("recv_drafts", 1)
    value, seconds = first.result()
    assert value == other.result()[0] == NONE
    return seconds


def test_when_the_drafter_is_killed_the_verifiers_go_on_at_once(ranks: Ranks, tmp_path: Path) -> None:
    first, other, drafter = started(ranks, tmp_path, LONG_S)
    first.do("send_sampled", [[1, 2, 3, 4]])
    for _ in range(2):
        first.do("expect_drafts", 1)
    drafter.do("send_drafts", [[1, 2, 3]])
    for verifier in (first, other):
        verifier.begin("recv_drafts", 1)
    assert first.result()[0] == other.result()[0] == [[1, 2, 3]]

    drafter.end()
    assert no_drafts(first, other) < AT_ONCE_S
    for _ in range(MAX_OUTSTANDING + 1):  # all that could wait for the drafter
        first.begin("send_sampled", [[1, 2, 3, 4]])
        assert first.result()[1] < AT_ONCE_S
        first.do("expect_drafts", 1)
        assert no_drafts(first, other) < AT_ONCE_S
    (lost,) = first.do("lost")
    assert "did not send a message" in lost


def test_when_the_drafter_is_killed_while_it_is_waited_for_the_verifiers_go_on_at_once(
    ranks: Ranks, tmp_path: Path
) -> None:
    first, other, drafter = started(ranks, tmp_path, LONG_S)
    first.do("expect_drafts", 1)
    for verifier in (first, other):
        verifier.begin("recv_drafts", 1)
    drafter.end()
    for verifier in (first, other):
        value, seconds = verifier.result()
        assert value == NONE
        assert seconds < AT_ONCE_S
    assert len(first.do("lost")) == 1


def test_a_drafter_that_is_frozen_is_given_up_at_the_deadline_by_all_verifiers(ranks: Ranks, tmp_path: Path) -> None:
    """The others may have begun to wait before the first one did."""
    first, other, drafter = started(ranks, tmp_path, SHORT_S)
    drafter.freeze()
    try:
        other.begin("recv_drafts", 1)
        sleep(0.3 * SHORT_S)
        first.begin("recv_drafts", 1)
        value, seconds = first.result()
        assert value == NONE
        assert 0.9 * SHORT_S < seconds < 3 * SHORT_S
        assert other.result()[0] == NONE
        assert no_drafts(first, other) < 0.5 * SHORT_S, "it is waited for once"
        (lost,) = first.do("lost")
        assert "did not send a message" in lost
    finally:
        drafter.end()


def test_after_a_loss_another_drafter_takes_part(ranks: Ranks, tmp_path: Path) -> None:
    first, other, drafter = started(ranks, tmp_path, LONG_S)
    drafter.end()
    no_drafts(first, other)
    *_, another = ranks(3)
    (tmp_path / "again").mkdir()
    assert rejoin(first, another, tmp_path / "again", LONG_S) == [None] * 2

    first.do("expect_drafts", 1)
    first.do("send_sampled", [[1, 2, 3, 4]])
    assert another.do("recv_sampled", 1) == [[1, 2, 3, 4]]
    another.do("send_drafts", [[7, 8, 9]])
    for verifier in (first, other):
        verifier.begin("recv_drafts", 1)
    assert first.result()[0] == other.result()[0] == [[7, 8, 9]]
    assert len(first.do("lost")) == 1


def test_another_verifier_that_is_killed_is_missed_at_once(ranks: Ranks, tmp_path: Path) -> None:
    first, other, drafter = started(ranks, tmp_path, LONG_S)
    drafter.do("send_drafts", [[1, 2, 3]])
    other.begin("recv_drafts", 1)
    first.end()
    value, seconds = other.result()
    assert isinstance(value, LinkError)
    assert "do not hear each other" in str(value)
    assert seconds < AT_ONCE_S
