"""The product's links between two processes, with vLLM or without: their ends, over groups and communicators.

Ranks: 0 is the verifier, 1 the drafter.
"""

import time
import uuid
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
from gpu.nccl import Communicator

from worker.minedraft.host_link import HostLink
from worker.minedraft.nccl_link import NcclDrafter, NcclVerifier, Streams

DEADLINE = timedelta(seconds=20)
#: More than it takes a busy machine to import torch in the other process, or vLLM.
WITHIN = timedelta(seconds=60)
VERIFIER, DRAFTER = 0, 1

Kind = Literal["host", "nccl", "one communicator"]


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where and how two ranks meet.

    Attributes:
        address: a file that nobody has written yet.
        kind: of the link; with `one communicator` both directions share it.
        drafts: drafted tokens a request and step.
        devices: of each rank: `cpu`, or `cuda:0` and so on.
        product: whether they meet as the product's ranks do, with vLLM's groups and communicators.
    """

    address: str
    kind: Kind
    drafts: int
    devices: tuple[str, str]
    product: bool = False

    def end(self, rank: int) -> Any:
        """A rank's end of the link. Its device is the current one.

        Raises:
            LinkError: the product's ranks did not meet.
            RuntimeError: others did not.
        """
        device = torch.device(self.devices[rank])
        if self.product:
            return self._products(rank, device)
        if self.kind == "host":
            return HostLink(self._gloo(rank), self.drafts, DEADLINE, device)
        store = self._store()
        down = Communicator(store, "down", rank, 2)
        up = down if self.kind == "one communicator" else Communicator(store, "up", rank, 2)
        return (NcclVerifier, NcclDrafter)[rank](down, up, 1, self.drafts, Streams(device))

    def _products(self, rank: int, device: torch.device) -> Any:
        if self.kind == "host":
            return HostLink.connect(self.address, rank, self.drafts, DEADLINE, WITHIN, device)
        if rank == VERIFIER:
            return NcclVerifier.connect(self.address, rank, 1, self.drafts, device)
        return NcclDrafter.connect(self.address, 1, self.drafts, device)

    def leave(self, rank: int, end: Any) -> None:
        """Close an end once the verifier has received all: the drafter's last message may be under way until then.

        Raises:
            TimeoutError: it has not.
        """
        done = Path(f"{self.address}.done")
        if rank == VERIFIER:
            done.touch()
        deadline = time.monotonic() + DEADLINE.total_seconds()
        while not done.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the verifier did not receive all")
            time.sleep(0.01)
        end.close()

    def _gloo(self, rank: int) -> Any:
        from torch.distributed.distributed_c10d import ProcessGroupGloo  # not in each build of torch

        return ProcessGroupGloo(torch.distributed.PrefixStore("link", self._store()), rank, 2, timeout=DEADLINE)

    def _store(self) -> Any:
        store = torch.distributed.FileStore(self.address, -1)
        store.set_timeout(WITHIN)
        return store


def meeting(folder: Path, kind: Kind, drafts: int, device: str, *, product: bool = False) -> Meeting:
    """A new meeting. Of two GPUs each rank has one; otherwise they share what is there."""
    both = ("cpu", "cpu") if device == "cpu" else ("cuda:0", "cuda:0" if torch.cuda.device_count() < 2 else "cuda:1")
    return Meeting(str(folder / f"link-{uuid.uuid4().hex}"), kind, drafts, both, product)
