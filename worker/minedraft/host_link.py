"""The link of ranks on devices through the host's memory: for one GPU that ranks share, for debugging, for CPUs.

Ids take the way device, pinned memory, gloo, pinned memory, device. The CPU of the sender waits for none of it: a
thread of the link's own waits until a copy from the device is there, and then gives it to gloo. The CPU of the receiver
waits: it cannot hand to its device what has not come.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch import Tensor

from worker.minedraft.link import GlooLink, LinkError, meet
from worker.minedraft.packets import width

#: How long the thread waits where `link.MAX_OUTSTANDING` messages were not taken, which no order of calls leads to.
_PATIENCE = timedelta(seconds=0.5)
#: How long the end of the link waits for its thread (seconds): longer than that.
_END_WITHIN_S = 1.0


class _Message(NamedTuple):
    """One that will be sent.

    Attributes:
        ids: on the CPU, once the event has come.
        copied: the CUDA event; None: they are there.
        send: what to call with them then.
    """

    ids: Tensor
    copied: Any
    send: Callable[[Tensor], None]


class HostLink:
    """One end of the link; both ends are this class, as with `GlooLink`.

    Args:
        group: a gloo process group of two, `GlooLink.FIRST` and `GlooLink.DRAFTER`.
        drafts: drafted tokens a request and step.
        deadline: how long a message may take.
        device: of this rank; received ids are made ready for it.
    """

    def __init__(self, group: Any, drafts: int, deadline: timedelta, device: torch.device) -> None:
        # gloo cannot give up waiting for a send, so the thread must not wait for long: it could not be ended.
        self._outgoing = GlooLink(group, drafts, _PATIENCE, width(drafts))
        self._incoming = GlooLink(group, drafts, deadline, width(drafts))
        self._deadline, self._device = deadline, device
        self._queue: SimpleQueue[_Message | None] = SimpleQueue()
        self._changed = threading.Condition()
        self._under_way = 0
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._send_all, name="minedraft-link", daemon=True)
        self._thread.start()

    @classmethod
    def connect(
        cls, address: str, rank: int, drafts: int, deadline: timedelta, within: timedelta | None, device: torch.device
    ) -> "HostLink":
        """Meet the other rank.

        Args:
            address: a file that no rank has written yet.
            rank: `GlooLink.FIRST` or `GlooLink.DRAFTER`.
            drafts: drafted tokens a request and step.
            deadline: how long each message may take.
            within: how long it may take to meet; None: as long.
            device: of this rank.

        Raises:
            LinkError: the other one did not come in time.
        """
        return cls(meet(address, "link", rank, 2, within or deadline), drafts, deadline, device)

    def send_sampled(self, sampled: Tensor) -> None:
        """See the end's protocol."""
        self._give(sampled, self._outgoing.send_sampled)

    def expect_sampled(self, requests: int) -> None:
        """See the end's protocol."""
        self._check()
        self._incoming.expect_sampled(requests)

    def recv_sampled(self, requests: int) -> Tensor:
        """See the end's protocol. In memory that copies to the device without waiting."""
        self._check()
        return self._ready(self._incoming.recv_sampled(requests))

    def send_drafts(self, drafts: Tensor) -> None:
        """See the end's protocol."""
        self._give(drafts, self._outgoing.send_drafts)

    def send_nothing(self) -> None:
        """See the end's protocol."""
        self._give(torch.empty(0, device=self._device), _drop)

    def expect_drafts(self, requests: int) -> None:
        """See the end's protocol."""
        self._check()
        self._incoming.expect_drafts(requests)

    def recv_drafts(self, requests: int) -> Tensor:
        """See the end's protocol. In memory that copies to the device without waiting."""
        self._check()
        return self._ready(self._incoming.recv_drafts(requests))

    def send_proposals(self, proposals: Tensor) -> None:
        """See the end's protocol."""
        self._give(proposals, self._outgoing.send_proposals)

    def expect_proposals(self, requests: int, vocabulary: int) -> None:
        """See the end's protocol."""
        self._check()
        self._incoming.expect_proposals(requests, vocabulary)

    def recv_proposals(self, requests: int, vocabulary: int) -> Tensor:
        """See the end's protocol."""
        self._check()
        return self._ready(self._incoming.recv_proposals(requests, vocabulary))

    def wait_sent(self, outstanding: int) -> None:
        """See the end's protocol. Sent is what the device has computed and gloo has got."""
        with self._changed:
            in_time = self._changed.wait_for(
                lambda: self._error is not None or self._under_way <= outstanding, self._deadline.total_seconds()
            )
        self._check()
        if not in_time:
            raise LinkError(f"what was to be sent was not computed within {self._deadline.total_seconds():g} s")

    def close(self) -> None:
        """See the end's protocol.

        The thread ends within a second. Only a device that hangs can hold it longer: then it sends nothing any more,
        and ends with the process.
        """
        self._fail(LinkError("the link is closed"))
        self._queue.put(None)
        self._thread.join(_END_WITHIN_S)
        self._outgoing.close()
        self._incoming.close()

    def _give(self, message: Tensor, send: Callable[[Tensor], None]) -> None:
        self._check()
        ids, copied = _copied(message)
        with self._changed:
            self._under_way += 1
        self._queue.put(_Message(ids, copied, send))

    def _send_all(self) -> None:
        """The thread."""
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # or it would take memory of the first GPU, whosever that is
        while (message := self._queue.get()) is not None:
            try:
                if message.copied is not None:
                    message.copied.synchronize()
                if self._error is not None:
                    return
                message.send(message.ids)
            except Exception as error:  # whatever it is, the caller has to hear of it
                self._fail(error)
                return
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _check(self) -> None:
        if self._error is not None:
            raise LinkError(f"nothing is sent any more: {self._error}") from self._error

    def _ready(self, message: Tensor) -> Tensor:
        return message.pin_memory() if self._device.type == "cuda" else message


def _drop(message: Tensor) -> None:
    """In place of a send."""
    del message


def _copied(message: Tensor) -> tuple[Tensor, Any]:
    """A copy on the CPU that the current stream makes, and the event that says that it is there.

    It is a copy on a CPU, too: the caller may write its next message into the same memory.
    """
    if not message.is_cuda:
        return message.clone(), None
    ids = torch.empty(message.shape, dtype=message.dtype, pin_memory=True)
    ids.copy_(message, non_blocking=True)
    copied = torch.cuda.Event(blocking=True)  # a thread that spins would take the core of one that works
    copied.record(torch.cuda.current_stream(message.device))
    return ids, copied
