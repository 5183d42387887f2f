"""What crosses between the verifiers and the drafter, whatever carries it.

Two directions, each a queue of its own (on one NCCL communicator they would block each other):

    down   verifier 0 -> drafter          sampled ids  [requests, drafts + 1] int32, REJECTED after the last valid one
    up     drafter -> every verifier      drafted ids  [requests, drafts] int32

Rows go in the order of the step's `num_scheduled_tokens`, which all ranks share; runners may order theirs differently.
Only ids cross: with greedy drafting the verifier needs no probabilities.

`lanes.py` decides when each message is sent and received, and why that cannot deadlock.
"""

from collections import deque
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor

#: Stands in a row of sampled ids where a draft was rejected (vLLM's own value, `v1/sample/rejection_sampler.py`).
REJECTED = -1
#: Sends that may be under way in one direction; the protocol never has more than two.
MAX_OUTSTANDING = 4

_DOWN, _UP = 0, 1


class LinkError(Exception):
    """The other side did not send, or take, a message in time, or is gone."""


class Link(Protocol):
    """One rank's end. Sends return at once; a receive returns or raises before its deadline.

    `expect_*` says early, and in order, what will be received: a link that cannot deliver to a rank that is not yet
    receiving makes itself ready, so that the message is there when it is wanted. It never waits. Whoever has expected
    a message expects each one after it, too, or receives what is expected first.
    """

    def send_sampled(self, sampled: Tensor) -> None:
        """Send [requests, drafts + 1] ids down; verifier 0 only. Rows may be narrower than that."""
        ...

    def expect_sampled(self, requests: int) -> None:
        """A message from verifier 0 with so many rows will be received; drafter only."""
        ...

    def recv_sampled(self, requests: int) -> Tensor:
        """The next message from verifier 0: [requests, drafts + 1] int32; drafter only.

        Raises:
            LinkError: it did not come in time.
        """
        ...

    def send_drafts(self, drafts: Tensor) -> None:
        """Send [requests, drafts] ids up, to all verifiers; drafter only."""
        ...

    def expect_drafts(self, requests: int) -> None:
        """A message from the drafter with so many rows will be received; verifiers only."""
        ...

    def recv_drafts(self, requests: int) -> Tensor:
        """The next message from the drafter: [requests, drafts] int32; verifiers only.

        Raises:
            LinkError: it did not come in time.
        """
        ...

    def close(self) -> None:
        """Give up what the link holds; nothing can be sent or received afterwards."""
        ...


class GlooLink:
    """A link through host memory: gloo's sockets. For CPUs, and for GPUs that NCCL cannot connect.

    gloo moves a message only when both sides have asked for it: a receive that is posted late costs a round trip
    between the processes, 1 ms on a busy machine.

    Args:
        group: a process group of the verifiers (ranks 0, 1, ...) and the drafter (the last rank).
        drafts: drafted tokens a request and step.
        deadline: how long a message may take.
    """

    def __init__(self, group: Any, drafts: int, deadline: timedelta) -> None:
        self._group = group
        self._drafts = drafts
        self._deadline = deadline
        self._drafter = group.size() - 1
        self._outbox: deque[tuple[Tensor, list[Any]]] = deque()  # gloo reads a tensor until its sends have ended
        self._inbox: deque[tuple[Tensor, Any]] = deque()  # each rank receives in one direction only

    @classmethod
    def connect(cls, address: str, rank: int, verifiers: int, drafts: int, deadline: timedelta) -> "GlooLink":
        """Meet the other ranks; rank `verifiers` is the drafter.

        Args:
            address: a file that no rank has written yet.

        Raises:
            LinkError: they did not all come in time.
        """
        from vllm.distributed.utils import init_gloo_process_group  # noqa: PLC0415 - the one use of vLLM here

        try:
            store = torch.distributed.FileStore(address, verifiers + 1)
            store.set_timeout(deadline)
            group = init_gloo_process_group(torch.distributed.PrefixStore("link", store), rank, verifiers + 1, deadline)
        except RuntimeError as error:  # torch's DistStoreError is one, too
            raise LinkError(f"the ranks did not meet within {deadline.total_seconds():g} s: {error}") from error
        return cls(group, drafts, deadline)

    def send_sampled(self, sampled: Tensor) -> None:
        """See `Link`."""
        message = torch.full((sampled.shape[0], self._drafts + 1), REJECTED, dtype=torch.int32)
        message[:, : sampled.shape[1]] = sampled
        self._send(message, [self._drafter], _DOWN)

    def expect_sampled(self, requests: int) -> None:
        """See `Link`."""
        self._post((requests, self._drafts + 1), 0, _DOWN)

    def recv_sampled(self, requests: int) -> Tensor:
        """See `Link`."""
        return self._receive((requests, self._drafts + 1), 0, _DOWN)

    def send_drafts(self, drafts: Tensor) -> None:
        """See `Link`."""
        self._send(drafts.to(torch.int32, copy=True).contiguous(), list(range(self._drafter)), _UP)

    def expect_drafts(self, requests: int) -> None:
        """See `Link`."""
        self._post((requests, self._drafts), self._drafter, _UP)

    def recv_drafts(self, requests: int) -> Tensor:
        """See `Link`."""
        return self._receive((requests, self._drafts), self._drafter, _UP)

    def close(self) -> None:
        """See `Link`."""
        self._outbox.clear()
        self._inbox.clear()
        self._group = None

    def _send(self, message: Tensor, ranks: list[int], tag: int) -> None:
        self._outbox.append((message, [self._group.send([message], rank, tag) for rank in ranks]))
        while len(self._outbox) > MAX_OUTSTANDING:
            for work in self._outbox.popleft()[1]:
                self._wait(work, "take")

    def _post(self, shape: tuple[int, int], rank: int, tag: int) -> None:
        message = torch.empty(shape, dtype=torch.int32)
        self._inbox.append((message, self._group.recv([message], rank, tag)))

    def _receive(self, shape: tuple[int, int], rank: int, tag: int) -> Tensor:
        if not self._inbox:
            self._post(shape, rank, tag)
        message, work = self._inbox.popleft()
        assert message.shape == shape, "messages are received as they were expected"
        self._wait(work, "send")
        return message

    def _wait(self, work: Any, verb: str) -> None:
        try:
            work.wait(self._deadline)
        except RuntimeError as error:
            raise LinkError(f"the other side did not {verb} a message: {error}") from error
