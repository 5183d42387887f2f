"""Part `link` of tier A, and the same of tier B: do messages come, the right ones, in order, and how fast."""

import argparse
import random
import time
from typing import Any

import numpy as np
import torch
from gpu.devices import worker_on
from gpu.links import VERIFIER, Meeting, meeting
from gpu.parts import Checks
from gpu.together import Failed, together

from worker.minedraft.packets import pack, unpack

ROWS, DRAFTS = 64, 5
PINGS = 1000
#: Steps in which each side computes up to so many ms.
STEPS, MOST_MS = 2000, 20.0
DRY_PINGS, DRY_STEPS, DRY_MOST_MS = 200, 100, 2.0
#: A step must not wait long for a message through the host's memory: 30 ms is a usual one.
SLOWEST_MS = 2.0
DUPLICATE_S, ONE_COMMUNICATOR_S, PINGS_S, ALTERNATE_S = 30.0, 20.0, 40.0, 60.0


def run(checks: Checks, options: argparse.Namespace) -> None:
    if options.device == "cpu":
        _pings(checks, meeting(options.folder, "host", DRAFTS, "cpu"), DRY_PINGS)
        _alternation(checks, meeting(options.folder, "host", DRAFTS, "cpu"), DRY_STEPS, DRY_MOST_MS, options.seed)
    elif torch.cuda.device_count() < 2:
        _one_gpu_twice(checks, meeting(options.folder, "nccl", DRAFTS, "cuda"))
        _pings(checks, meeting(options.folder, "host", DRAFTS, "cuda"), PINGS)
        _alternation(
            checks, meeting(options.folder, "host", DRAFTS, "cuda"), STEPS // 10, MOST_MS, options.seed
        )  # time-sliced
    else:
        _pings(checks, meeting(options.folder, "host", DRAFTS, "cuda"), PINGS)
        _alternation(checks, meeting(options.folder, "nccl", DRAFTS, "cuda"), STEPS, MOST_MS, options.seed)
        one = meeting(options.folder, "one communicator", DRAFTS, "cuda")
        _one_communicator(checks, one, options.seed)


def run_product(checks: Checks, options: argparse.Namespace) -> None:
    """The same link as the product's ranks make it, with vLLM's groups and communicators."""
    _alternation(
        checks, meeting(options.folder, options.link, DRAFTS, "cuda", product=True), 200, MOST_MS / 4, options.seed
    )


def _one_gpu_twice(checks: Checks, where: Meeting) -> None:
    try:
        together(_only_meet, where, limit_s=DUPLICATE_S)
        said, refused = "NCCL connected them", False
    except Failed as failure:
        said = str(failure)
        refused = "invalid usage" in said.lower() or "duplicate gpu" in said.lower()
    checks.judge(
        "two ranks of one GPU on NCCL",
        said,
        f"refused within {DUPLICATE_S:.0f} s",
        ok=refused,
        why="the product says `--link host` then; a hang here would be one at its start",
    )


def _pings(checks: Checks, where: Meeting, pings: int) -> None:
    title, why = f"{pings} pings through the host's memory", "what a step waits where the link is not hidden"
    try:
        (sent, came), (got, answered, wrong) = together(_ping, where, pings, limit_s=PINGS_S)
    except Failed as failure:
        checks.judge(title, failure, "all come", ok=False, why=why)
        return
    checks.judge(title, f"{wrong} wrong", "none", ok=not wrong, why="the other side goes on from them")
    times = {"down": np.subtract(got, sent), "up": np.subtract(came, answered), "both ways": np.subtract(came, sent)}
    for way, ns in times.items():
        half, most = np.percentile(ns / 1e6, [50, 99])
        what, said = f"a ping's time {way}, {ROWS} x {DRAFTS} ids", f"median {half:.2f} ms, 99 % below {most:.2f} ms"
        if where.devices[0] == "cpu" or way == "both ways":
            checks.report(what, said, why=why)
        else:
            checks.judge(what, said, f"median below {SLOWEST_MS:g} ms", ok=half < SLOWEST_MS, why=why)


def _alternation(checks: Checks, where: Meeting, steps: int, most_ms: float, seed: int) -> None:
    title = f"{steps} steps on {where.kind}, each side busy for 0 to {most_ms:g} ms"
    why = "whoever is late, nobody waits for ever, and messages are the right ones"
    try:
        (wrong_drafts, seconds), (wrong_packets, _) = together(
            _alternate, where, steps, most_ms, seed, limit_s=ALTERNATE_S
        )
    except Failed as failure:
        checks.judge(title, failure, f"done within {ALTERNATE_S:.0f} s", ok=False, why=why)
        return
    said = f"{wrong_drafts} wrong drafts, {wrong_packets} wrong packets, {1000 * seconds / steps:.1f} ms a step"
    checks.judge(title, said, "none wrong", ok=not wrong_drafts and not wrong_packets, why=why)


def _one_communicator(checks: Checks, where: Meeting, seed: int) -> None:
    try:
        together(_alternate, where, STEPS // 20, MOST_MS, seed, limit_s=ONE_COMMUNICATOR_S)
        said = "it went through: NCCL buffered the messages"
    except Failed as failure:
        said = f"{failure}: both sides wait in a send"
    checks.report(
        "both directions on one communicator",
        said,
        limit="no promise of NCCL's: a hang is expected",
        why="why there are two",
    )


def _only_meet(rank: int, where: Meeting) -> None:
    worker_on(where.devices[rank])
    where.end(rank).close()


def _ping(rank: int, where: Meeting, pings: int) -> tuple[Any, ...]:
    """The verifier: when it sent packets, and when the answers were on its device. The drafter: the other way round."""
    worker, end = worker_on(where.devices[rank]), where.end(rank)
    warm, out, back, wrong = pings // 10, [], [], 0
    for ping in range(warm + pings):
        if rank == VERIFIER:
            packet = _packet(ping, worker.device)
            worker.finish()
            out.append(time.monotonic_ns())
            end.send_sampled(packet)
            end.expect_drafts(ROWS)
            end.recv_drafts(ROWS).to(worker.device, non_blocking=True)
            worker.finish()
            back.append(time.monotonic_ns())
        else:
            end.expect_sampled(ROWS)
            ids, _, _ = unpack(end.recv_sampled(ROWS).to(worker.device, non_blocking=True))
            worker.finish()
            back.append(time.monotonic_ns())
            wrong += int(ids[:, 0].ne(ping).sum())
            drafts = ids[:, 1:].to(torch.int32)
            worker.finish()
            out.append(time.monotonic_ns())
            end.send_drafts(drafts)
    where.leave(rank, end)
    return (out[warm:], back[warm:]) if rank == VERIFIER else (back[warm:], out[warm:], wrong)


def _alternate(rank: int, where: Meeting, steps: int, most_ms: float, seed: int) -> tuple[int, float]:
    """Steps of two batches in the product's order of messages; how many were wrong, and how long it took (seconds).

    Each message says which step it is of, and is compared on the device, so that nothing waits for it on the CPU.
    """
    worker, end = worker_on(where.devices[rank]), where.end(rank)
    rng, wrong = random.Random(seed + rank), torch.zeros((), dtype=torch.int64, device=worker.device)
    marks: list[Any] = []
    worker.finish()
    began = time.monotonic()
    for step in range(steps):
        spin = rng.uniform(0, most_ms)
        if rank == VERIFIER:
            if step >= 2:
                marks[step - 2].wait()  # as an engine that has the result of the batch's last call
                wrong += _expect_drafts(end, step - 2, worker.device)
            worker.spin(spin)
            end.send_sampled(_packet(step, worker.device))
            end.expect_drafts(ROWS)
            marks.append(worker.mark())
        else:
            end.wait_sent(1)
            end.expect_sampled(ROWS)
            ids, _, _ = unpack(end.recv_sampled(ROWS).to(worker.device, non_blocking=True))
            wrong += ids.ne(step).sum()
            worker.spin(spin)
            end.send_drafts(ids[:, 1:].to(torch.int32))
    if rank == VERIFIER:
        for step in range(max(0, steps - 2), steps):
            wrong += _expect_drafts(end, step, worker.device)
    worker.finish()
    seconds = time.monotonic() - began
    where.leave(rank, end)
    return int(wrong), seconds


def _packet(step: int, device: torch.device) -> torch.Tensor:
    """One in which each id is the step's number."""
    ids = torch.full((ROWS, DRAFTS + 1), step, device=device)
    counts = torch.full((ROWS,), DRAFTS + 1, dtype=torch.int32, device=device)
    return pack(ids, counts, torch.zeros_like(counts), DRAFTS)


def _expect_drafts(end: Any, step: int, device: torch.device) -> torch.Tensor:
    """How many ids of the next drafts are not the step's number; on the device."""
    return end.recv_drafts(ROWS).to(device, non_blocking=True).ne(step).sum()
