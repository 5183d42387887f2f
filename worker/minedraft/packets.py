"""What ranks on vLLM's V2 runner tell each other, as tensors on their devices: no waiting, nothing on the CPU.

On the V2 runner (`v1/worker/gpu/`, vLLM 0.32.0) a request has a slot for as long as it runs, and its drafts are in a
table by slot, `req_states.draft_tokens`. What a verifier has to say of a call is what the runner's
`postprocess_sampled` needs: sampled ids, how many of them are valid, and how many drafts were rejected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Numbers of a row beside its sampled ids: how many of those are valid, how many drafts were rejected.
_COUNTS = 2

#: Slots of requests, int64 [rows].
Numbers = NDArray[np.int64]


def width(drafts: int) -> int:
    """Numbers of a row in a packet, where so many tokens are drafted a step."""
    return drafts + 1 + _COUNTS


def pack(sampled: Tensor, num_sampled: Tensor, num_rejected: Tensor, drafts: int) -> Tensor:
    """What the first verifier tells the drafter of a call.

    Args:
        sampled: [rows, up to drafts + 1] ids; those after the valid ones may be anything.
        num_sampled: [rows] valid ids; 0 where a prompt is still being read.
        num_rejected: [rows] drafts that were not accepted.
        drafts: drafted tokens a step.

    Returns:
        [rows, drafts + 3] int32.
    """
    packet = torch.zeros((sampled.shape[0], width(drafts)), dtype=torch.int32, device=sampled.device)
    packet[:, : sampled.shape[1]] = sampled
    packet[:, drafts + 1] = num_sampled
    packet[:, drafts + 2] = num_rejected
    return packet


def unpack(packet: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What `pack` was given: [rows, drafts + 1] int64 ids, [rows] int32 valid ones, [rows] int32 rejected drafts."""
    return packet[:, :-_COUNTS].long(), packet[:, -2].contiguous(), packet[:, -1].contiguous()


def accepted(num_sampled: Tensor, num_drafts: Tensor) -> Tensor:
    """[rows] how many drafts of each were accepted, given its valid ids and how many drafts were verified."""
    return torch.minimum((num_sampled - 1).clamp_min(0), num_drafts)


class Slots:
    """Whose a slot is: a number that grows each time it is freed, as in vLLM's `pp_utils.py`.

    Drafts that were under way when their request ended, or was preempted, must not become those of the next request in
    its slot.

    Args:
        most: slots.
    """

    def __init__(self, most: int) -> None:
        self._generations = np.zeros(most, np.int64)

    def freed(self, slot: int) -> None:
        """The request in a slot is gone."""
        self._generations[slot] += 1

    def snapshot(self, slots: Numbers) -> Numbers:
        """[rows] to be compared later: whose the slots are now."""
        return self._generations[slots].copy()

    def kept(self, slots: Numbers, snapshot: Numbers) -> Numbers:
        """Which rows, in order, still belong to the request that they belonged to.

        Args:
            slots: [rows] of a message.
            snapshot: [rows] from when it was sent for.
        """
        rows: Numbers = np.flatnonzero(self._generations[slots] == snapshot)
        return rows


def scatter(table: Tensor, slots: Numbers, rows: Numbers, drafts: Tensor) -> None:
    """Put received drafts where the next verify pass reads them.

    Row numbers come from the CPU, and both lists of them are uploaded: a boolean mask would wait for the device.

    Args:
        table: [slots, drafts] int64 of all requests; written.
        slots: [rows of the message] of each row.
        rows: [kept] which rows of the message to write.
        drafts: [rows of the message, drafts] ids; what is below 0 never came, and becomes 0: any guess is as lossless.
    """
    if not len(rows):
        return
    where, which = (upload(numbers, table.device) for numbers in (slots[rows], rows))
    chosen = drafts.index_select(0, which).to(table.dtype).clamp_min_(0)
    table.index_copy_(0, where, chosen)


class Placed(Protocol):
    """What `found` reads of a step; see `lanes.Step`."""

    scheduled_spec_decode_tokens: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Found:
    """Drafts that the engine process has put into a step itself.

    Attributes:
        slots: [rows] of their requests.
        drafts: [rows, drafts] int64 ids, 0 after a row's last.
    """

    slots: Numbers
    drafts: Numbers

    def put(self, table: Tensor) -> None:
        """Put them where this call's pass reads them.

        Args:
            table: [slots, drafts] int64 of all requests; written.
        """
        scatter(table, self.slots, np.arange(len(self.slots)), upload(self.drafts, table.device))


def found(step: Placed, slots: Mapping[str, int], drafts: int) -> Found | None:
    """Those of a step; None: all of its drafts are from messages.

    Args:
        step: of a call; its placeholders are below 0.
        slots: of its requests.
        drafts: drafted tokens a request and step, at most.
    """
    rows: dict[str, Sequence[int]] = {
        request: ids for request, ids in step.scheduled_spec_decode_tokens.items() if ids[0] >= 0
    }
    if not rows:
        return None
    ids = np.zeros((len(rows), drafts), np.int64)
    for row, found_ids in enumerate(rows.values()):
        ids[row, : len(found_ids)] = found_ids
    return Found(np.array([slots[request] for request in rows], np.int64), ids)


def upload(numbers: NDArray[np.integer[Any]], device: torch.device) -> Tensor:
    """The numbers on a device, without waiting for it: from pinned memory."""
    host = torch.from_numpy(np.ascontiguousarray(numbers))
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)
