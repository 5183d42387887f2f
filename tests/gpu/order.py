"""Part `order` of tier A: two batches on made-up work, through the product's pipelines, link, clock and call numbers.

A verify pass is matrix products that take V ms, drafting is hundreds of little kernels that take t ms. If streams,
sends and receives are where they should be, a step takes max(V, t), whichever is larger.
"""

import argparse
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gpu.devices import Worker, worker_on
from gpu.links import VERIFIER, Meeting, meeting
from gpu.parts import Checks
from gpu.together import Failed, together
from steps import Step

from worker.minedraft.event_clock import WIDEST_NS, stage_clock
from worker.minedraft.measures import Summary, summary
from worker.minedraft.pipeline import DrafterPipeline, VerifierPipeline
from worker.minedraft.stages import DRAFTER, Records, Stage, StageReader, ring_path, verifier_name

RATIOS = (0.3, 1.0, 2.0)
VERIFY_MS, CALLS, LIMIT_S = 10.0, 300, 120.0
DRY_CALLS = 40
#: Calls at the start that are not counted, of those that are made in each ratio.
WARM = 20
ROWS, DRAFTS = 32, 4
#: A step may take so much longer than the longer side.
SLACK = 0.10
HIDDEN = 0.9


class Batch:
    """One of the two: its requests and their slots, for all calls."""

    def __init__(self, number: int, device: torch.device) -> None:
        requests = [f"{number}-{row}" for row in range(ROWS)]
        drafts = {request: [-1] * DRAFTS for request in requests}
        self.step = Step(dict.fromkeys(requests, DRAFTS + 1), drafts)
        slots = np.arange(number, 2 * ROWS, 2, dtype=np.int32)
        self.slots = torch.tensor(slots, device=device)
        self.input = SimpleNamespace(  # as vLLM's `InputBatch`
            idx_mapping_np=slots,
            idx_mapping=self.slots,
            num_draft_tokens_per_req=np.full(ROWS, DRAFTS, np.int32),
        )


def run(checks: Checks, options: argparse.Namespace) -> None:
    dry = options.device == "cpu"
    calls = DRY_CALLS if dry else CALLS
    two = not dry and torch.cuda.device_count() > 1
    where = [meeting(options.folder, "nccl" if two else "host", DRAFTS, options.device) for _ in RATIOS]
    folders = [options.folder / f"order-{ratio:g}" for ratio in RATIOS]
    for folder in folders:
        folder.mkdir()
    try:
        walls, wrong = together(_side, where, folders, calls, limit_s=LIMIT_S)
    except Failed as failure:
        checks.judge("two batches", failure, "they end", ok=False, why="a deadlock of the product's would show here")
        return
    for ratio, folder, wall, of_ratio in zip(RATIOS, folders, walls, wrong, strict=True):
        verifier, drafter = _records(folder, calls)
        _judge(checks, ratio, wall, of_ratio, verifier, drafter, judged=two)


def _judge(
    checks: Checks, ratio: float, wall_ms: float, wrong: int, verifier: Records, drafter: Records, *, judged: bool
) -> None:
    """Say what came of one ratio; how long things took counts only where both sides have a device of their own."""
    name, found = f"t/V = {ratio:g}", summary(verifier, drafter)
    checks.judge(f"{name}: drafts", f"{wrong} wrong", "none", ok=not wrong, why="each call verifies its own")
    share = found.acceptance
    checks.judge(f"{name}: all drafts are accepted", share, "1", ok=share == 1, why="counted on the device")
    late = latest_effect_ms(verifier, drafter)
    checks.judge(
        f"{name}: a packet comes after it was sent",
        f"{late:.3f} ms after, at least",
        f"above -{WIDEST_NS / 1e6:g} ms",
        ok=late > -WIDEST_NS / 1e6,
        why="the clocks of both processes agree as far as they say",
    )
    checks.report(f"{name}: all that was measured", describe(found), why="to explain the rest")
    longer = max(found.verify_ms or 0.0, found.draft_ms or 0.0)
    verdicts = {
        "step over the longer of V and t": (wall_ms / longer, 1 + SLACK, wall_ms <= (1 + SLACK) * longer),
        "step by the CPU over step by the device": (
            wall_ms / (found.step_ms or np.nan),
            1.05,
            abs(wall_ms / (found.step_ms or np.nan) - 1) < 0.05,
        ),
    }
    why = "two batches hide the shorter of the two"
    for what, (measured, limit, ok) in verdicts.items():
        if judged:
            checks.judge(f"{name}: {what}", f"{measured:.3f}", f"{limit:.2f}", ok=bool(ok), why=why)
        else:
            checks.report(f"{name}: {what}", f"{measured:.3f}", limit=f"{limit:.2f} on two GPUs", why=why)
    hidden = found.hidden_share or 0.0
    if judged:
        checks.judge(f"{name}: hidden share", f"{hidden:.3f}", f"{HIDDEN:g}", ok=hidden >= HIDDEN, why=why)
    else:
        checks.report(f"{name}: hidden share", f"{hidden:.3f}", limit=f"{HIDDEN:g} on two GPUs", why=why)


def latest_effect_ms(verifier: Records, drafter: Records) -> float:
    """How long after a packet's send had begun it was there, in the call where that was soonest (ms)."""
    _, sent, got = np.intersect1d(verifier["call"], drafter["call"], return_indices=True)
    after = drafter["end"][got, Stage.RECV] - verifier["begin"][sent, Stage.SEND]
    return float(after.min()) / 1e6


def describe(found: Summary) -> str:
    """A summary in a line."""
    times = {
        "V": found.verify_ms,
        "t": found.draft_ms,
        "step": found.step_ms,
        "verifier waits": found.verifier_wait_ms,
        "drafter waits": found.drafter_wait_ms,
    }
    said = ", ".join(f"{name} {'-' if ms is None else f'{ms:.2f} ms'}" for name, ms in times.items())
    return f"{said}, {found.steady_calls} steady calls"


def _records(folder: Path, calls: int) -> tuple[Records, Records]:
    """What both ranks recorded of the calls that count."""
    found = []
    for rank in (verifier_name(0), DRAFTER):
        records = StageReader(ring_path(folder, rank)).read()
        assert len(records) == calls, f"{rank} has {len(records)} records of {calls} calls"
        found.append(records[records["call"] > WARM])
    return found[0], found[1]


def _side(rank: int, where: list[Meeting], folders: list[Path], calls: int) -> list[Any]:
    """All ratios: of each the time of a step (ms) from the verifier, the number of wrong drafts from the drafter's."""
    worker = worker_on(where[0].devices[rank])
    side = _verify if rank == VERIFIER else _draft
    return [
        side(worker, meets, folder, VERIFY_MS * (1 if rank == VERIFIER else ratio), calls)
        for ratio, meets, folder in zip(RATIOS, where, folders, strict=True)
    ]


def _verify(worker: Worker, where: Meeting, folder: Path, ms: float, calls: int) -> float:
    """The verifier's side. Sampled ids of call n in slot s begin at n * 1000 + s.

    What it verified is left for the drafter's side to count, which has the time.
    """
    work, batches = worker.heavy(ms), [Batch(number, worker.device) for number in range(2)]
    clock, end = stage_clock(ring_path(folder, verifier_name(0)), worker.device), where.end(VERIFIER)
    pipeline = VerifierPipeline(end, clock, DRAFTS, 2 * ROWS)
    table = torch.zeros((2 * ROWS, DRAFTS), dtype=torch.int64, device=worker.device)
    verified = torch.zeros((calls, ROWS, DRAFTS), dtype=torch.int64, device=worker.device)
    ahead = torch.arange(DRAFTS + 1, device=worker.device)
    counts = torch.full((ROWS,), DRAFTS + 1, dtype=torch.int32, device=worker.device)
    none = torch.zeros_like(counts)
    marks, began = [], 0.0
    worker.finish()
    with worker.no_waiting():
        for call in range(1, calls + 1):
            batch = batches[call % 2]
            if call > 2:
                marks[call - 3].wait()  # the engine schedules a batch again when it has its result
            if call == WARM:
                began = time.monotonic()
            pipeline.begin(batch.step, {})
            pipeline.get_prev_sampled_outputs(table)
            verified[call - 1] = table[batch.slots]
            clock.stop(Stage.PREPARE)
            clock.start(Stage.FORWARD)
            work()
            clock.stop(Stage.FORWARD)
            clock.start(Stage.SAMPLE)
            sampled = (call * 1000 + batch.slots)[:, None] + ahead
            clock.stop(Stage.SAMPLE)
            pipeline.broadcast(sampled, counts, none, batch.input)
            marks.append(worker.mark())
            clock.commit()
        marks[-1].wait()
        step_ms = 1000 * (time.monotonic() - began) / (calls - WARM + 1)
        pipeline.begin(Step(), {})  # as at the end of all requests
        pipeline.get_prev_sampled_outputs(table)
    worker.finish()
    clock.flush()
    np.save(folder / "verified.npy", verified.cpu().numpy())
    where.leave(VERIFIER, end)
    return step_ms


def _draft(worker: Worker, where: Meeting, folder: Path, ms: float, calls: int) -> int:
    """The drafter's side: it goes on from the last sampled id of each row."""
    work, batches = worker.small(ms), [Batch(number, worker.device) for number in range(2)]
    clock, end = stage_clock(ring_path(folder, DRAFTER), worker.device), where.end(1 - VERIFIER)
    pipeline = DrafterPipeline(end, clock, DRAFTS)
    table = torch.zeros((2 * ROWS, DRAFTS), dtype=torch.int64, device=worker.device)
    ahead = torch.arange(1, DRAFTS + 1, device=worker.device)
    worker.finish()
    with worker.no_waiting():
        for call in range(1, calls + 1):
            batch = batches[call % 2]
            pipeline.begin(batch.step, {})
            ids, _, _ = pipeline.sampled(ROWS, worker.device)
            work()
            table[batch.slots] = ids[:, -1:] + ahead
            pipeline.broadcast_drafts(table, batch.input)
            clock.commit()
        pipeline.begin(Step(), {})
    worker.finish()
    where.leave(1 - VERIFIER, end)
    clock.flush()
    return wrong_drafts(np.load(folder / "verified.npy"))


def wrong_drafts(verified: np.ndarray) -> int:
    """How many drafts were not those of the batch's call before.

    Args:
        verified: [calls, rows, drafts] what each call found in the table.
    """
    wrong = 0
    for call, rows in enumerate(verified[2:], 3):
        for row, drafts in enumerate(rows):
            slot = call % 2 + 2 * row
            last = (call - 2) * 1000 + slot + DRAFTS
            wrong += sum(int(draft) != last + ahead for ahead, draft in enumerate(drafts, 1))
    return wrong
