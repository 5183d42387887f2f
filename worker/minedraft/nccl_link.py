"""The link of ranks on GPUs of their own: NCCL, from GPU to GPU, in the order of streams. No CPU waits for a message.

Two communicators, for a send of NCCL's ends when it is received, and one communicator does one thing after another:

    down   verifier 0, the drafter       send and receive: packets [rows, drafts + 3] int32 (`packets.py`)
    up     all verifiers, the drafter    broadcast by the drafter: ids [rows, drafts] int32

On one of them verifier 0 would wait in the send of its next packet until the drafter received it, and the drafter,
before it could, in that of its drafts until verifier 0 received them.

- *Receives are on the main stream*, the one that vLLM computes on: whatever is behind them needs what they bring, and
  no kernel of NCCL's spins beside those of a forward pass.
- *Sends are on a side stream*, behind what the main stream has been given so far. On the main stream a verifier's would
  hold up the copy of its results to the CPU, and the drafter's its next drafting, until the peer comes.
- *Nothing is received that was not asked for*: no receive is issued before the send, of the same rank, that leads to
  it. So each wait is for work that the peer has already been given.

Each message is of ids alone, with a row for each request of a call however long its prompt is: `max_num_seqs` rows at
most.

A peer that dies leaves kernels that spin for ever. That is not noticed here but by those who watch processes, and by
vLLM's limit on the time of a call; `close` ends such kernels.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor

from worker.minedraft.link import LinkError
from worker.minedraft.packets import width

#: Ranks in `down`. In `up` the verifiers have their own, and the drafter comes after them.
_FIRST, _DRAFTER = 0, 1

#: How long it may take until NCCL knows of all ranks; from then on it waits for them without a limit of its own.
_WITHIN = timedelta(seconds=60)

_ONE_QUEUE = "CUDA_DEVICE_MAX_CONNECTIONS"


class Communicator(Protocol):
    """What is used of vLLM's `PyNcclCommunicator` (`distributed/device_communicators/pynccl.py`)."""

    def send(self, tensor: Tensor, dst: int, stream: Any = None) -> None:
        """Send to a rank, in the order of a stream."""
        ...

    def recv(self, tensor: Tensor, src: int, stream: Any = None) -> None:
        """Receive from a rank, in the order of a stream; written."""
        ...

    def broadcast(self, tensor: Tensor, src: int, stream: Any = None) -> None:
        """Send from rank `src` to all others, in the order of a stream; written there."""
        ...

    def destroy(self) -> None:
        """Abort what is under way, and give up."""
        ...


class Streams:
    """The streams of a rank that messages take.

    Args:
        device: the rank's GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._side = torch.cuda.Stream(device)

    def main(self) -> Any:
        """The caller's own."""
        assert not torch.cuda.is_current_stream_capturing(), "a graph would repeat the message"
        return torch.cuda.current_stream(self.device)

    def sending(self) -> Any:
        """The one to send on, behind all that the caller's own has been given."""
        self._side.wait_stream(self.main())
        return self._side

    def keep(self, message: Tensor) -> None:
        """Let nobody have a message's memory before it is sent."""
        message.record_stream(self._side)

    def sent(self) -> Any:
        """An event that comes when all before is sent; who waits for it sleeps."""
        return self._side.record_event(torch.cuda.Event(blocking=True))


class _NcclEnd:
    """What both ends share.

    Args:
        down: None: the rank is not in it.
        up: every rank is.
        verifiers: how many there are.
        drafts: drafted tokens a request and step.
        streams: of this rank.
    """

    def __init__(
        self, down: Communicator | None, up: Communicator, verifiers: int, drafts: int, streams: Streams
    ) -> None:
        self._down, self._up, self._streams = down, up, streams
        self._drafter = verifiers  # its rank in `up`
        self._drafts = drafts
        self._closed = False

    def close(self) -> None:
        """See the end's protocol. Takes seconds where a message is under way that nobody will take."""
        if not self._closed:
            self._closed = True
            _destroy(self._down, self._up)

    def _send(self, ids: Tensor, send: Callable[[Tensor, int, Any], None], to: int) -> None:
        with self._using("send"):
            # A copy, made where the ids were: the main stream may write its next ones there before these are taken.
            message = ids.to(torch.int32, copy=True, memory_format=torch.contiguous_format)
            send(message, to, self._streams.sending())
            self._streams.keep(message)

    def _receive(self, shape: tuple[int, int], receive: Callable[[Tensor, int, Any], None], source: int) -> Tensor:
        with self._using("receive"):
            message = torch.empty(shape, dtype=torch.int32, device=self._streams.device)
            receive(message, source, self._streams.main())
            return message

    @contextmanager
    def _using(self, verb: str) -> Iterator[None]:
        """Say what NCCL raises as a `LinkError`; of a communicator that was destroyed vLLM asks nothing, silently."""
        if self._closed:
            raise LinkError("the link is closed")
        try:
            yield
        except RuntimeError as error:
            raise LinkError(f"NCCL did not {verb} a message: {error}") from error


class NcclVerifier(_NcclEnd):
    """A verifier's end. All of them do the same; the first one's sends."""

    @classmethod
    def connect(cls, address: str, rank: int, verifiers: int, drafts: int, device: torch.device) -> "NcclVerifier":
        """Meet the other ranks, all at the same time. Takes memory of the GPU, which vLLM should see when it measures.

        Args:
            address: a file, on the one host of all ranks, that no rank has written yet.
            rank: of this verifier.
            verifiers: how many there are.
            drafts: drafted tokens a request and step.
            device: the rank's GPU, which no other rank has.

        Raises:
            LinkError: the others did not come in time, or NCCL cannot connect these ranks.
        """
        down, up = _connected(address, rank, verifiers, device)
        return cls(down, up, verifiers, drafts, Streams(device))

    def send_sampled(self, sampled: Tensor) -> None:
        """See the end's protocol: a packet. Nothing, unless this is the first verifier."""
        assert sampled.shape[1] == width(self._drafts)
        if self._down is not None:
            self._send(sampled, self._down.send, _DRAFTER)

    def expect_drafts(self, requests: int) -> None:
        """Nothing: a receive that is issued before it is wanted would spin on the GPU beside the model."""

    def recv_drafts(self, requests: int) -> Tensor:
        """See the end's protocol. On the device, once its main stream is there."""
        return self._receive((requests, self._drafts), self._up.broadcast, self._drafter)


class NcclDrafter(_NcclEnd):
    """The drafter's end."""

    def __init__(
        self, down: Communicator | None, up: Communicator, verifiers: int, drafts: int, streams: Streams
    ) -> None:
        super().__init__(down, up, verifiers, drafts, streams)
        self._sends: deque[Any] = deque()  # the events of those that may be under way

    @classmethod
    def connect(cls, address: str, verifiers: int, drafts: int, device: torch.device) -> "NcclDrafter":
        """See `NcclVerifier.connect`."""
        down, up = _connected(address, verifiers, verifiers, device)
        return cls(down, up, verifiers, drafts, Streams(device))

    def expect_sampled(self, requests: int) -> None:
        """Nothing: see `NcclVerifier.expect_drafts`."""

    def recv_sampled(self, requests: int) -> Tensor:
        """See the end's protocol: a packet, on the device, once its main stream is there."""
        assert self._down is not None
        return self._receive((requests, width(self._drafts)), self._down.recv, _FIRST)

    def send_drafts(self, drafts: Tensor) -> None:
        """See the end's protocol."""
        assert drafts.shape[1] == self._drafts
        self._send(drafts, self._up.broadcast, self._drafter)
        self._sends.append(self._streams.sent())

    def send_nothing(self) -> None:
        """See the end's protocol."""
        self._streams.sending()
        self._sends.append(self._streams.sent())

    def wait_sent(self, outstanding: int) -> None:
        """See the end's protocol. Sent is what all verifiers have taken."""
        while len(self._sends) > outstanding:
            self._sends.popleft().synchronize()


def _connected(
    address: str, rank: int, verifiers: int, device: torch.device
) -> tuple[Communicator | None, Communicator]:
    """This rank's part of `down`, if it has one, and of `up`.

    Args:
        address: see `NcclVerifier.connect`.
        rank: in `up`.
        verifiers: how many there are.
        device: the rank's GPU.

    Raises:
        LinkError: the others did not come in time, or NCCL cannot connect these ranks.
    """
    if os.environ.get(_ONE_QUEUE) == "1":
        raise LinkError(
            f"{_ONE_QUEUE}=1 puts all streams of a GPU into one queue, where a message that waits for its receiver "
            "stops the model: unset it"
        )
    down = up = None
    try:
        store = torch.distributed.FileStore(address, -1)
        store.set_timeout(_WITHIN)
        if rank in {0, verifiers}:
            down = _communicator(store, "down", _DRAFTER if rank else _FIRST, 2, device)
        up = _communicator(store, "up", rank, verifiers + 1, device)
        _exchange(down, up, rank, verifiers, device)
    except RuntimeError as error:  # of torch's store, or NCCL's
        _destroy(down, up)
        raise LinkError(_why(error)) from error
    return down, up


def _exchange(down: Communicator | None, up: Communicator, rank: int, verifiers: int, device: torch.device) -> None:
    """Send a first message each way, and wait for it: NCCL takes memory, and connects ranks, when they first speak.

    Later it would be memory that vLLM has given away by then, and a wait of CPUs in the first calls.
    """
    message = torch.zeros(1, dtype=torch.int32, device=device)
    stream = torch.cuda.current_stream(device)
    if down is not None and rank == verifiers:
        down.recv(message, _FIRST, stream)
    elif down is not None:
        down.send(message, _DRAFTER, stream)
    up.broadcast(message, verifiers, stream)
    stream.synchronize()


def _destroy(*communicators: Communicator | None) -> None:
    """Give up communicators, all at the same time: what spins in one of them holds up the end of the others."""
    threads = [threading.Thread(target=one.destroy, daemon=True) for one in communicators if one is not None]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _communicator(store: Any, name: str, rank: int, ranks: int, device: torch.device) -> Communicator:
    """One of vLLM's; blocks until all ranks are there.

    Raises:
        RuntimeError: they do not come, or NCCL cannot connect them.
    """
    # They need NCCL, or at least vLLM; what is above needs torch alone.
    from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator  # noqa: PLC0415
    from vllm.distributed.utils import StatelessProcessGroup  # noqa: PLC0415

    group = StatelessProcessGroup(rank, ranks, torch.distributed.PrefixStore(name, store))
    communicator = PyNcclCommunicator(group, device)
    if communicator.disabled:  # it would do nothing, silently
        raise RuntimeError("vLLM found no NCCL, or was told not to use it (VLLM_DISABLE_PYNCCL)")
    return communicator  # type: ignore[no-any-return] # vLLM's types are not read


def _why(error: RuntimeError) -> str:
    """What an error of `_connected` means."""
    if "invalid usage" in str(error):  # all that vLLM tells of NCCL's "Duplicate GPU detected"
        return f"two ranks share a GPU: --link host ({error})"
    return f"the ranks did not connect: {error}"
