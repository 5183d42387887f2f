"""What crosses between the first verifier and the drafter, whatever carries it.

Two directions, each a queue of its own (on one NCCL communicator they would block each other):

    down   verifier 0 -> drafter      sampled ids  [requests, drafts + 1] int32, REJECTED after the last valid one
    up     drafter -> verifier 0      drafted ids  [requests, drafts] int32, `relay.NO_DRAFT` after the last one of a
                                      row, and then, where there are any,
                                      proposals    [requests with one, drafts, vocabulary] float32

The other verifiers hear of the drafts from the first one (`relay.py`): a drafter that dies may have sent to some and
not to others, and ranks that verify different drafts would compute nonsense.

Rows go in the order of the step's `num_scheduled_tokens`, which all ranks share; runners may order theirs differently.
Of greedy drafts only ids cross. Drafts that were drawn come with the distributions that they were drawn from, their
proposals; both sides know of which requests (`sampling.has_proposals`). Where there is none after all a row holds NaN.

On vLLM's V2 runner rows down are wider (`packets.py`), and there are no proposals: `VerifierIds` and `DeviceDrafterEnd`
are all that it needs of a link. `nccl_link.py` carries messages from GPU to GPU, `host_link.py` through host memory.

`lanes.py` decides when each message is sent and received, and why that cannot deadlock.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor

#: Stands in a row of sampled ids where a draft was rejected (vLLM's own value, `v1/sample/rejection_sampler.py`).
REJECTED = -1
#: Sends that may be under way in one direction. Where drafts are asked for the protocol has those of two calls at most;
#: where none are, those that a drafter is behind by: as many as its queue of calls holds (`drafter_process.py`).
MAX_OUTSTANDING = 8

_DOWN, _UP = 0, 1


class LinkError(Exception):
    """The other side did not send, or take, a message in time, or is gone."""


class VerifierIds(Protocol):
    """Verifier 0's end, for ids alone. Sends return at once; a receive returns or raises before its deadline.

    `expect_*`, at both ends, says early, and in order, what will be received: a link that cannot deliver to a rank that
    is not yet receiving makes itself ready, so that the message is there when it is wanted. It never waits. Whoever has
    expected a message expects each one after it, too, or receives what is expected first.
    """

    def send_sampled(self, sampled: Tensor) -> None:
        """Send [requests, drafts + 1] ids, or a packet, down. Rows may be narrower than the link's.

        Raises:
            LinkError: a message before was not taken in time, or the drafter is gone.
        """
        ...

    def expect_drafts(self, requests: int) -> None:
        """A message from the drafter with so many rows will be received.

        Raises:
            LinkError: the drafter is gone.
        """
        ...

    def recv_drafts(self, requests: int) -> Tensor:
        """The next message from the drafter: [requests, drafts] int32.

        Raises:
            LinkError: it did not come in time.
        """
        ...

    def close(self) -> None:
        """Give up what the link holds; nothing can be sent or received afterwards."""
        ...


class VerifierEnd(VerifierIds, Protocol):
    """Verifier 0's end, for ids and proposals."""

    def expect_proposals(self, requests: int, vocabulary: int) -> None:
        """After the drafts that were expected last so many proposals will be received.

        Raises:
            LinkError: the drafter is gone.
        """
        ...

    def recv_proposals(self, requests: int, vocabulary: int) -> Tensor:
        """Those of the drafts that were received last: [requests, drafts, vocabulary] float32.

        Raises:
            LinkError: they did not come in time.
        """
        ...


class DrafterIds(Protocol):
    """The drafter's end, for ids alone; see `VerifierIds`."""

    def expect_sampled(self, requests: int) -> None:
        """A message from verifier 0 with so many rows will be received.

        Raises:
            LinkError: verifier 0 is gone.
        """
        ...

    def recv_sampled(self, requests: int) -> Tensor:
        """The next message from verifier 0: [requests, drafts + 1] int32, or a packet.

        Raises:
            LinkError: it did not come in time.
        """
        ...

    def send_drafts(self, drafts: Tensor) -> None:
        """Send [requests, drafts] ids up.

        Raises:
            LinkError: a message before was not taken in time, or verifier 0 is gone.
        """
        ...

    def close(self) -> None:
        """Give up what the link holds; nothing can be sent or received afterwards."""
        ...


class DrafterEnd(DrafterIds, Protocol):
    """The drafter's end, for ids and proposals."""

    def send_proposals(self, proposals: Tensor) -> None:
        """Send those of the drafts before up: [requests, drafts, vocabulary].

        Raises:
            LinkError: a message before was not taken in time, or verifier 0 is gone.
        """
        ...


class DeviceDrafterEnd(DrafterIds, Protocol):
    """The drafter's end where its sends wait for a device, so that the CPU may be far ahead of them."""

    def send_nothing(self) -> None:
        """Send no drafts in this call; for `wait_sent` they are under way until the device has computed the call.

        Raises:
            LinkError: verifier 0 is gone.
        """
        ...

    def wait_sent(self, outstanding: int) -> None:
        """Wait on the CPU until at most so many of the sends before are still under way.

        Whatever memory of the CPU the device read for the others may be written again.

        Raises:
            LinkError: they did not get away in time.
        """
        ...


class GlooLink:
    """A link through host memory: gloo's sockets. For CPUs, and for GPUs that NCCL cannot connect.

    gloo moves a message only when both sides have asked for it: a receive that is posted late costs a round trip
    between the processes, 1 ms on a busy machine.

    Args:
        group: a process group of two, `FIRST` and `DRAFTER`.
        drafts: drafted tokens a request and step.
        deadline: how long a message may take.
        width: numbers of a row down; None: drafts + 1 sampled ids.
    """

    #: The ranks of a link.
    FIRST, DRAFTER = 0, 1

    def __init__(self, group: Any, drafts: int, deadline: timedelta, width: int | None = None) -> None:
        self._group = group
        self._drafts = drafts
        self._width = width or drafts + 1
        self._deadline = deadline
        self._outbox: deque[tuple[Tensor, Any]] = deque()  # gloo reads a tensor until its send has ended
        self._inbox: deque[tuple[Tensor, Any]] = deque()  # each rank receives in one direction only

    @classmethod
    def connect(
        cls, address: str, rank: int, drafts: int, deadline: timedelta, within: timedelta | None = None
    ) -> "GlooLink":
        """Meet the other rank.

        Args:
            address: a file that no rank has written yet.
            rank: `FIRST` or `DRAFTER`.
            drafts: drafted tokens a request and step.
            deadline: how long each message may take.
            within: how long it may take to meet; None: as long.

        Raises:
            LinkError: the other one did not come in time.
        """
        return cls(meet(address, "link", rank, 2, within or deadline), drafts, deadline)

    def send_sampled(self, sampled: Tensor) -> None:
        """See the end's protocol."""
        message = torch.full((sampled.shape[0], self._width), REJECTED, dtype=torch.int32)
        message[:, : sampled.shape[1]] = sampled
        self._send(message, self.DRAFTER, _DOWN)

    def expect_sampled(self, requests: int) -> None:
        """See the end's protocol."""
        self._post((requests, self._width), self.FIRST, _DOWN)

    def recv_sampled(self, requests: int) -> Tensor:
        """See the end's protocol."""
        return self._receive((requests, self._width), self.FIRST, _DOWN)

    def send_drafts(self, drafts: Tensor) -> None:
        """See the end's protocol."""
        self._send(drafts.to(torch.int32, copy=True).contiguous(), self.FIRST, _UP)

    def expect_drafts(self, requests: int) -> None:
        """See the end's protocol."""
        self._post((requests, self._drafts), self.DRAFTER, _UP)

    def recv_drafts(self, requests: int) -> Tensor:
        """See the end's protocol."""
        return self._receive((requests, self._drafts), self.DRAFTER, _UP)

    def send_proposals(self, proposals: Tensor) -> None:
        """See the end's protocol."""
        self._send(proposals.to(torch.float32, copy=True).contiguous(), self.FIRST, _UP)

    def expect_proposals(self, requests: int, vocabulary: int) -> None:
        """See the end's protocol."""
        self._post((requests, self._drafts, vocabulary), self.DRAFTER, _UP, torch.float32)

    def recv_proposals(self, requests: int, vocabulary: int) -> Tensor:
        """See the end's protocol."""
        return self._receive((requests, self._drafts, vocabulary), self.DRAFTER, _UP, torch.float32)

    def close(self) -> None:
        """See the end's protocol."""
        self._outbox.clear()
        self._inbox.clear()
        self._group = None

    def _send(self, message: Tensor, rank: int, tag: int) -> None:
        with _told("take"):
            self._outbox.append((message, self._group.send([message], rank, tag)))
            while len(self._outbox) > MAX_OUTSTANDING:
                self._outbox.popleft()[1].wait(self._deadline)

    def _post(self, shape: tuple[int, ...], rank: int, tag: int, dtype: torch.dtype = torch.int32) -> None:
        message = torch.empty(shape, dtype=dtype)
        with _told("send"):
            self._inbox.append((message, self._group.recv([message], rank, tag)))

    def _receive(self, shape: tuple[int, ...], rank: int, tag: int, dtype: torch.dtype = torch.int32) -> Tensor:
        if not self._inbox:
            self._post(shape, rank, tag, dtype)
        message, work = self._inbox.popleft()
        assert message.shape == shape, "messages are received as they were expected"
        with _told("send"):
            work.wait(self._deadline)
        return message


def meet(address: str, name: str, rank: int, ranks: int, deadline: timedelta) -> Any:
    """A gloo process group.

    Args:
        address: a file in which the ranks find each other; it may serve several groups.
        name: of the group.
        rank: of this process in it.
        ranks: how many it has.
        deadline: how long it may take to meet, and then how long each message may.

    Raises:
        LinkError: they did not all come in time.
    """
    from vllm.distributed.utils import init_gloo_process_group  # noqa: PLC0415 - the one use of vLLM here

    try:
        store = torch.distributed.FileStore(address, -1)
        store.set_timeout(deadline)
        return init_gloo_process_group(torch.distributed.PrefixStore(name, store), rank, ranks, deadline)
    except RuntimeError as error:  # torch's DistStoreError is one, too
        raise LinkError(f"the ranks did not meet within {deadline.total_seconds():g} s: {error}") from error


@contextmanager
def _told(verb: str) -> Iterator[None]:
    """Say what gloo raises as a `LinkError`."""
    try:
        yield
    except RuntimeError as error:
        raise LinkError(f"the other side did not {verb} a message: {error}") from error
