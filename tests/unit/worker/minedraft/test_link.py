"""What a gloo link does with its process group; the integration tests have real ones."""

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
    """A process group of two verifiers, 0 and 1, and the drafter, 2."""

    def __init__(self, error: str | None = None) -> None:
        self.sent: list[tuple[Tensor, int, int]] = []
        self.works: list[Work] = []
        self._error = error

    def size(self) -> int:
        return 3

    def send(self, tensors: Sequence[Tensor], rank: int, tag: int) -> Work:
        self.sent.append((tensors[0], rank, tag))
        self.works.append(Work(self._error))
        return self.works[-1]

    def recv(self, tensors: Sequence[Tensor], rank: int, tag: int) -> Work:
        tensors[0].fill_(rank * 10 + tag)
        return Work(self._error)


def test_rows_of_sampled_ids_are_filled_up() -> None:
    group = Group()
    GlooLink(group, 3, DEADLINE).send_sampled(torch.tensor([[5, 6], [7, REJECTED]]))
    ((message, rank, _),) = group.sent
    assert message.tolist() == [[5, 6, REJECTED, REJECTED], [7, REJECTED, REJECTED, REJECTED]]
    assert (message.dtype, rank) == (torch.int32, 2)


@pytest.mark.parametrize("turned", [False, True])
def test_drafts_go_to_all_verifiers_as_they_are_now(turned: bool) -> None:
    """gloo reads contiguous memory, and later; vLLM's proposer may write its next drafts into the same tensor."""
    group, memory = Group(), torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    drafts = memory.T if turned else memory
    ids = drafts.tolist()
    GlooLink(group, 2, DEADLINE).send_drafts(drafts)
    memory.zero_()
    assert [(message.tolist(), rank) for message, rank, _ in group.sent] == [(ids, 0), (ids, 1)]
    assert all(message.is_contiguous() for message, _, _ in group.sent)


def test_directions_do_not_mix() -> None:
    group = Group()
    link = GlooLink(group, 1, DEADLINE)
    link.send_sampled(torch.tensor([[1, 2]]))
    link.send_drafts(torch.tensor([[1]]))
    (_, _, down), (_, _, up), _ = group.sent
    assert down != up
    assert link.recv_sampled(4).tolist() == [[down, down]] * 4
    assert link.recv_drafts(4).tolist() == [[20 + up]] * 4


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
