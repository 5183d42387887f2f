"""What the NCCL link is made of, on gloo: so its ends run in an engine, with the order of messages that they have.

A send returns at once, and is over when it was received, as on a side stream; a receive waits, as a main stream does.
There is no device that would go on meanwhile: what streams and kernels do, only GPUs show.
"""

from datetime import timedelta
from typing import Any

from torch import Tensor

from worker.minedraft.link import meet

_WITHIN = timedelta(seconds=60)


class Communicator:
    def __init__(self, group: Any, rank: int) -> None:
        self._group, self._rank = group, rank

    def send(self, tensor: Tensor, dst: int, stream: Any = None) -> None:
        stream.append((self._group.send([tensor], dst, 0), tensor))

    def recv(self, tensor: Tensor, src: int, stream: Any = None) -> None:
        assert stream is None, "receives are on the main stream"
        self._group.recv([tensor], src, 0).wait(_WITHIN)

    def broadcast(self, tensor: Tensor, src: int, stream: Any = None) -> None:
        work = self._group.broadcast(tensor, src)
        if src == self._rank:
            stream.append((work, tensor))
        else:
            assert stream is None, "receives are on the main stream"
            work.wait(_WITHIN)

    def destroy(self) -> None:
        self._group = None


class Event:
    def __init__(self, work: Any) -> None:
        self._work = work

    def synchronize(self) -> None:
        self._work.wait(_WITHIN)


class Streams:
    """Stands for `nccl_link.Streams`; its side stream is the list of what was sent."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._side: list[tuple[Any, Tensor]] = []

    def main(self) -> None:
        return None

    def sending(self) -> list[tuple[Any, Tensor]]:
        del self._side[:-8]
        return self._side

    def keep(self, message: Tensor) -> None:
        assert any(message is sent for _, sent in self._side)

    def sent(self) -> Event:
        return Event(self._side[-1][0])


def connected(address: str, rank: int, verifiers: int, device: Any) -> tuple[Communicator | None, Communicator]:
    """Stands for `nccl_link._connected`."""
    down = None
    if rank in {0, verifiers}:
        down = Communicator(meet(address, "down", min(rank, 1), 2, _WITHIN), min(rank, 1))
    return down, Communicator(meet(address, "up", rank, verifiers + 1, _WITHIN), rank)
