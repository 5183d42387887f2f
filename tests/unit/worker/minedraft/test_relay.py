"""What verifiers make of a drafter that is lost; `test_protocol.py` has it with lanes, and others with gloo."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from steps import DRAFTS, MemoryRelay, table
from torch import Tensor

from worker.minedraft.link import LinkError
from worker.minedraft.relay import NO_DRAFT, FirstVerifier, OtherVerifier, Relay

DEADLINE = timedelta(seconds=7)
NONE = [[NO_DRAFT] * DRAFTS]


class Link:
    """Verifier 0's end: does what it is asked to, so many times."""

    def __init__(self, operations: int) -> None:
        self.left = operations
        self.closed = 0
        self.done: list[str] = []

    def send_sampled(self, sampled: Tensor) -> None:
        self._do(f"send {len(sampled)}")

    def expect_drafts(self, requests: int) -> None:
        self._do(f"expect {requests}")

    def recv_drafts(self, requests: int) -> Tensor:
        self._do(f"receive {requests}")
        return torch.ones(requests, DRAFTS, dtype=torch.int32)

    def expect_proposals(self, requests: int, vocabulary: int) -> None:
        self._do(f"expect {requests} x {vocabulary}")

    def recv_proposals(self, requests: int, vocabulary: int) -> Tensor:
        self._do(f"receive {requests} x {vocabulary}")
        return torch.ones(requests, DRAFTS, vocabulary)

    def close(self) -> None:
        self.closed += 1

    def _do(self, what: str) -> None:
        assert not self.closed
        if not self.left:
            raise LinkError("it is gone")
        self.left -= 1
        self.done.append(what)


def operations_of(verifier: FirstVerifier) -> list[Callable[[], Tensor | None]]:
    """What a lane does with its end, in one call."""
    return [
        lambda: verifier.send_sampled(table([[1]])),
        lambda: verifier.expect_drafts(1),
        lambda: verifier.recv_drafts(1),
    ]


def test_while_there_is_a_drafter_all_is_passed_on() -> None:
    link, relay, lost = Link(9), MemoryRelay(2), list[LinkError]()
    first = FirstVerifier(link, relay, DRAFTS, lost.append)
    first.send_sampled(table([[1], [2]]))
    first.expect_drafts(2)
    assert first.recv_drafts(2).tolist() == [[1] * DRAFTS] * 2
    assert link.done == ["send 2", "expect 2", "receive 2"]
    for rank in (1, 2):
        assert OtherVerifier(relay.of(rank)).recv_drafts(2).tolist() == [[1] * DRAFTS] * 2
    assert (lost, link.closed) == ([], 0)


@pytest.mark.parametrize("lived", range(5))
def test_a_drafter_that_dies_before_its_proposals_leaves_drafts_without(lived: int) -> None:
    link, relay, lost = Link(lived), MemoryRelay(1), list[LinkError]()
    first, other = FirstVerifier(link, relay, DRAFTS, lost.append), OtherVerifier(relay.of(1))
    first.expect_drafts(2)
    first.expect_proposals(1, 5)
    drafts, proposals = first.recv_drafts(2), first.recv_proposals(1, 5)
    assert drafts.tolist() == ([[1] * DRAFTS] * 2 if lived > 2 else NONE * 2)
    assert proposals.shape == (1, DRAFTS, 5)
    assert proposals.isnan().all() == (lived < 4)
    other.expect_proposals(1, 5)
    assert other.recv_drafts(2).equal(drafts)
    assert other.recv_proposals(1, 5).isnan().all() == (lived < 4)
    assert len(lost) == (lived < 4)


@given(lived=st.integers(0, 8), order=st.lists(st.integers(0, 2), max_size=12), others=st.integers(0, 2))
def test_whatever_fails_first_it_goes_on_without_and_says_so_once(lived: int, order: list[int], others: int) -> None:
    link, relay, lost = Link(lived), MemoryRelay(others), list[LinkError]()
    first = FirstVerifier(link, relay if others else None, DRAFTS, lost.append)
    received = []
    for done, index in enumerate(order):
        drafts = operations_of(first)[index]()
        if index == 2:
            assert drafts is not None
            assert drafts.tolist() == ([[1] * DRAFTS] if done < lived else NONE)
            received.append(drafts.tolist())
    for rank in range(1, others + 1):
        other = OtherVerifier(relay.of(rank))
        assert [other.recv_drafts(1).tolist() for _ in received] == received
    assert all(inbox.empty() for inbox in relay.inboxes)
    assert [str(error) for error in lost] == ["it is gone"] * (len(order) > lived)
    assert link.closed == len(lost)


def test_who_begins_without_a_drafter_tells_nobody() -> None:
    lost: list[LinkError] = []
    first = FirstVerifier(None, None, DRAFTS, lost.append)
    *_, drafts = [operation() for operation in operations_of(first)]
    first.close()
    assert drafts is not None
    assert (drafts.tolist(), drafts.dtype, lost) == (NONE, torch.int32, [])


def test_who_closes_its_link_closes_it_once_and_tells_nobody() -> None:
    link, lost = Link(9), list[LinkError]()
    first = FirstVerifier(link, None, DRAFTS, lost.append)
    first.close()
    first.close()
    assert first.recv_drafts(1).tolist() == NONE
    assert (link.closed, lost) == (1, [])


def test_the_others_send_nothing_and_wait_for_the_first_one_alone() -> None:
    relay = MemoryRelay(1)
    other = OtherVerifier(relay.of(1))
    other.send_sampled(table([[1]]))
    other.expect_drafts(1)
    other.close()
    with pytest.raises(LinkError):
        other.recv_drafts(1)


class Work:
    def __init__(self, group: "Group") -> None:
        self._group = group

    def wait(self, deadline: timedelta) -> None:
        self._group.waited.append(deadline)
        if self._group.error:
            raise RuntimeError(self._group.error)


class Group:
    """A process group in which all receive sevens."""

    def __init__(self, error: str | None = None) -> None:
        self.error = error
        self.waited: list[timedelta] = []
        self.given: list[list[list[int]]] = []

    def broadcast(self, message: Tensor, root: int) -> Work:
        assert root == 0
        self.given.append(message.tolist())
        message.fill_(7)
        return Work(self)


def test_a_relay_has_room_for_as_many_rows_as_come() -> None:
    group = Group()
    taken = Relay(group, 2, DEADLINE).take(3)
    assert (taken.tolist(), taken.dtype) == ([[7, 7]] * 3, torch.int32)


def test_a_relay_gives_what_it_was_given() -> None:
    group = Group()
    Relay(group, 2, DEADLINE).give(table([[1, 2], [3, 4]]))
    assert group.given == [[[1, 2], [3, 4]]]


def test_another_verifier_that_is_gone_is_a_link_error_to_all() -> None:
    """Unlike a drafter that is: without one of its ranks there is no model."""
    relay, lost = Relay(Group("Connection closed by peer"), DRAFTS, DEADLINE), list[LinkError]()
    with pytest.raises(LinkError, match=r"do not hear each other: .*closed by peer"):
        OtherVerifier(relay).recv_drafts(1)
    with pytest.raises(LinkError, match="do not hear each other"):
        FirstVerifier(Link(9), relay, DRAFTS, lost.append).recv_drafts(1)
    assert lost == []


def test_one_verifier_has_nobody_to_relay_to(tmp_path: Path) -> None:
    assert Relay.connect(str(tmp_path / "link"), 0, 1, DRAFTS, DEADLINE) is None
    assert not list(tmp_path.iterdir())
