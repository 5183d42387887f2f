"""What a gloo link does with its process group; the integration tests have real ones."""

import gc
import weakref
from collections.abc import Sequence
from datetime import timedelta

import pytest
import torch
from torch import Tensor

from worker.minedraft.link import MAX_OUTSTANDING, REJECTED, GlooLink, LinkError

DEADLINE = timedelta(seconds=7)


class Work:
    """A send or receive that has begun."""

    def __init__(self, error: str | None = None) -> None:
        self.waited: list[timedelta] = []
        self._error = error

    def wait(self, deadline: timedelta) -> None:
        self.waited.append(deadline)
        if self._error:
            raise RuntimeError(self._error)


class Group:
    """A process group of the first verifier, 0, and the drafter, 1."""

    def __init__(self, error: str | None = None) -> None:
        self.sent: list[tuple[Tensor, int, int]] = []
        self.works: list[Work] = []
        self.received: list[int] = []
        """The rows of each receive."""
        self.gone = False
        self._error = error

    def send(self, tensors: Sequence[Tensor], rank: int, tag: int) -> Work:
        self._fail()
        self.sent.append((tensors[0], rank, tag))
        self.works.append(Work(self._error))
        return self.works[-1]

    def recv(self, tensors: Sequence[Tensor], rank: int, tag: int) -> Work:
        self._fail()
        self.received.append(len(tensors[0]))
        tensors[0].fill_(rank * 10 + tag)
        return Work(self._error)

    def _fail(self) -> None:
        if self.gone:
            raise RuntimeError("gone")


def test_rows_of_sampled_ids_are_filled_up() -> None:
    group = Group()
    GlooLink(group, 3, DEADLINE).send_sampled(torch.tensor([[5, 6], [7, REJECTED]]))
    ((message, rank, _),) = group.sent
    assert message.tolist() == [[5, 6, REJECTED, REJECTED], [7, REJECTED, REJECTED, REJECTED]]
    assert (message.dtype, rank) == (torch.int32, 1)


@pytest.mark.parametrize("turned", [False, True])
def test_drafts_go_as_they_are_now(turned: bool) -> None:
    """gloo reads contiguous memory, and later; vLLM's proposer may write its next drafts into the same tensor."""
    group, memory = Group(), torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    drafts = memory.T if turned else memory
    ids = drafts.tolist()
    GlooLink(group, 2, DEADLINE).send_drafts(drafts)
    memory.zero_()
    ((message, rank, _),) = group.sent
    assert (message.tolist(), rank) == (ids, 0)
    assert message.is_contiguous()


def test_directions_do_not_mix() -> None:
    group = Group()
    link = GlooLink(group, 1, DEADLINE)
    link.send_sampled(torch.tensor([[1, 2]]))
    link.send_drafts(torch.tensor([[1]]))
    (_, _, down), (_, _, up) = group.sent
    assert down != up
    assert link.recv_sampled(4).tolist() == [[down, down]] * 4
    assert link.recv_drafts(4).tolist() == [[10 + up]] * 4


def test_a_sender_waits_only_when_too_much_is_under_way() -> None:
    group = Group()
    link = GlooLink(group, 1, DEADLINE)
    for _ in range(MAX_OUTSTANDING):
        link.send_sampled(torch.tensor([[1]]))
    assert not any(work.waited for work in group.works)
    link.send_sampled(torch.tensor([[1]]))
    assert [work.waited for work in group.works] == [[DEADLINE], *[[]] * MAX_OUTSTANDING]


def test_what_gloo_raises_is_a_link_error() -> None:
    link = GlooLink(Group("Connection closed by peer"), 1, DEADLINE)
    with pytest.raises(LinkError, match=r"did not send a message: .*closed by peer"):
        link.recv_drafts(1)
    with pytest.raises(LinkError, match="did not take a message"):  # noqa: PT012 - which one it is, is not the point
        for _ in range(MAX_OUTSTANDING + 1):
            link.send_sampled(torch.tensor([[1]]))


def test_a_receive_is_made_ready_once_and_in_order() -> None:
    group = Group()
    link = GlooLink(group, 2, DEADLINE)
    for requests in (1, 2):
        link.expect_drafts(requests)
    assert group.received == [1, 2]
    assert [link.recv_drafts(requests).shape for requests in (1, 2, 3)] == [(1, 2), (2, 2), (3, 2)]
    assert group.received == [1, 2, 3]


def test_a_receive_that_cannot_be_made_ready_is_a_link_error() -> None:
    group = Group()
    group.gone = True
    link = GlooLink(group, 1, DEADLINE)
    for receive in (link.expect_sampled, link.expect_drafts, link.recv_sampled, link.recv_drafts):
        with pytest.raises(LinkError, match="gone"):
            receive(1)
    for send in (link.send_sampled, link.send_drafts):
        with pytest.raises(LinkError, match="gone"):
            send(torch.tensor([[1]]))


def test_proposals_follow_their_drafts() -> None:
    group = Group()
    link = GlooLink(group, 2, DEADLINE)
    link.send_drafts(torch.tensor([[1, 2]]))
    link.send_proposals(torch.full((1, 2, 5), 0.5, dtype=torch.float64))
    (_, rank, tag), (message, *where) = group.sent
    assert where == [rank, tag]
    assert (message.dtype, message.shape, message[0, 0, 0]) == (torch.float32, (1, 2, 5), 0.5)
    link.expect_drafts(3)
    link.expect_proposals(1, 5)
    assert group.received == [3, 1]
    assert (link.recv_drafts(3).shape, link.recv_proposals(1, 5).shape) == ((3, 2), (1, 2, 5))
    assert link.recv_proposals(4, 5).shape == (4, 2, 5), "though it was not expected"


def test_a_closed_link_keeps_nothing() -> None:
    group = Group()
    alive = weakref.ref(group)
    link = GlooLink(group, 1, DEADLINE)
    link.send_sampled(torch.tensor([[1]]))
    link.expect_drafts(1)
    link.close()
    del group
    gc.collect()
    assert alive() is None
