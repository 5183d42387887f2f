"""Part `packing` of tier A: what ranks tell each other, on the device, against a slow account of it on the CPU."""

import argparse
from typing import Any

import numpy as np
import torch
from gpu.devices import Worker, worker_on
from gpu.parts import Checks

from worker.minedraft.packets import Slots, accepted, pack, scatter, unpack

TRIALS = 200
SLOTS = 96


def run(checks: Checks, options: argparse.Namespace) -> None:
    worker = worker_on("cpu" if options.device == "cpu" else "cuda:0")
    rng = np.random.default_rng(options.seed)
    packets = sum(_packet_is_wrong(worker, rng) for _ in range(TRIALS))
    checks.judge(
        "packets", f"{packets} of {TRIALS} wrong", "none", ok=not packets, why="the drafter goes on from what they say"
    )
    scattered = sum(_scattering_is_wrong(worker, rng) for _ in range(TRIALS))
    checks.judge(
        "drafts into slots", f"{scattered} of {TRIALS} wrong", "none", ok=not scattered, why="no stale row is verified"
    )
    said = _says_when_it_waits(worker)
    if said is None:
        checks.report("nothing waits for the device", "nobody waits for a CPU", why="a hidden wait is a gap in a step")
    else:
        checks.judge(
            "nothing waits for the device",
            "the above ran, and a wait on purpose was refused" if said else "a wait on purpose was not noticed",
            "an error wherever something waits",
            ok=said,
            why="a hidden wait is a gap in every step",
        )


def _packet_is_wrong(worker: Worker, rng: np.random.Generator) -> bool:
    rows, drafts = int(rng.integers(1, 65)), int(rng.integers(1, 9))
    width = int(rng.integers(1, drafts + 2))
    ids = rng.integers(0, 2**31, (rows, width))
    valid, rejected = rng.integers(0, width + 1, rows), rng.integers(0, drafts + 1, rows)
    drafted = rng.integers(0, drafts + 1, rows)
    on_device = [_on(worker, numbers) for numbers in (ids, valid, rejected, drafted)]
    with worker.no_waiting():
        packet = pack(*on_device[:3], drafts)
        got = unpack(packet)
        taken = accepted(got[1], on_device[3])
    whole = np.zeros((rows, drafts + 1), np.int64)
    for row in range(rows):
        for place in range(width):
            whole[row, place] = ids[row, place]
    expected = [whole, valid, rejected, [min(max(0, v - 1), d) for v, d in zip(valid, drafted, strict=True)]]
    types = [torch.int64, torch.int32, torch.int32]
    return (
        packet.shape != (rows, drafts + 3)
        or packet.dtype != torch.int32
        or [it.dtype for it in got] != types
        or not all(np.array_equal(it.cpu().numpy(), want) for it, want in zip((*got, taken), expected, strict=True))
    )


def _scattering_is_wrong(worker: Worker, rng: np.random.Generator) -> bool:
    """Some requests end while their drafts are under way, and others take their slots."""
    rows, drafts = int(rng.integers(1, 65)), int(rng.integers(1, 9))
    slots = rng.permutation(SLOTS)[:rows].astype(np.int64)
    table = rng.integers(0, 1000, (SLOTS, drafts))
    message = rng.integers(-1, 1000, (rows, drafts))
    owners = Slots(SLOTS)
    for slot in rng.integers(0, SLOTS, 20):
        owners.freed(int(slot))
    snapshot = owners.snapshot(slots)
    gone = {int(slot) for slot in rng.permutation(SLOTS)[: int(rng.integers(0, SLOTS + 1))]}
    for slot in gone:
        owners.freed(slot)
    on_device, received = _on(worker, table), _on(worker, message.astype(np.int32))
    with worker.no_waiting():
        scatter(on_device, slots, owners.kept(slots, snapshot), received)
    for row, slot in enumerate(slots):
        if int(slot) not in gone:
            for place in range(drafts):
                table[slot, place] = max(0, message[row, place])
    return not np.array_equal(on_device.cpu().numpy(), table)


def _says_when_it_waits(worker: Worker) -> bool | None:
    """Whether a wait is noticed at all; None: there is nothing to wait for."""
    if worker.device.type == "cpu":
        return None
    with worker.no_waiting():
        try:
            torch.ones(1, device=worker.device).item()
        except RuntimeError:
            return True
    return False


def _on(worker: Worker, numbers: Any) -> torch.Tensor:
    return torch.tensor(numbers, device=worker.device)
