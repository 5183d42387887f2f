"""Part `clock` of tier A: are the times right that a rank records of its device, and what does recording take."""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from gpu.devices import Worker, worker_on
from gpu.parts import Checks

from worker.minedraft import event_clock
from worker.minedraft.event_clock import WIDEST_NS, EventClock, stage_clock
from worker.minedraft.stages import Records, Stage, StageReader

CALLS, DRY_CALLS, BUSY_MS = 400, 60, 5.0
#: An anchor is used so long here, so that there are some (ns).
RENEW_NS = 200_000_000
#: What a time may be wrong by: bounds that are as far apart as they may be, and a drift that is large (ms).
WRONG_MS = WIDEST_NS / 2 / 1e6 + 0.1


@dataclass(slots=True)
class Seen:
    """What the CPU knows of calls: [calls] ns of CLOCK_MONOTONIC, and how often a new anchor was taken.

    Attributes:
        asked: just before a call's work was asked for.
        done: when it was seen that the device was past it.
        cost: what it took to record the call (ns).
        anchors: how many, the first one included; None: the device needs none.
    """

    asked: np.ndarray
    done: np.ndarray
    cost: np.ndarray
    anchors: int | None


def run(checks: Checks, options: argparse.Namespace) -> None:
    dry = options.device == "cpu"
    worker, path = worker_on("cpu" if dry else "cuda:0"), options.folder / "clock.stages"
    event_clock.RENEW_NS = RENEW_NS  # of this process, which was started for this part
    clock = stage_clock(path, worker.device)
    seen = _calls(worker, clock, DRY_CALLS if dry else CALLS)
    early, late = errors_ms(StageReader(path).read(), seen)
    why = "overlap is judged by the times of two processes"
    limit = f"{WRONG_MS:.2f} ms"
    checks.judge("work begins before it was asked for", f"{early:.3f} ms", limit, ok=early < WRONG_MS, why=why)
    checks.judge("work ends after it was seen to be done", f"{late:.3f} ms", limit, ok=late < WRONG_MS, why=why)
    cost = f"{np.median(seen.cost) / 1e6:.3f} ms"
    checks.report("to record a call takes", cost, why="it is on the CPU's way to the next call")
    if seen.anchors is None:
        checks.report("anchors", "none: a CPU's times are its own", why=why)
    else:
        least = "3 or more, while the device is busy"
        checks.judge("anchors", seen.anchors, least, ok=seen.anchors >= 3, why="one for ever drifts away")


def errors_ms(records: Records, seen: Seen) -> tuple[float, float]:
    """By how much work begins too early, and ends too late, at most; below 0: not at all (ms)."""
    assert len(records) == len(seen.asked), f"{len(records)} records of {len(seen.asked)} calls"
    early = seen.asked - records["begin"][:, Stage.FORWARD]
    late = records["end"][:, Stage.FORWARD] - seen.done
    return float(early.max()) / 1e6, float(late.max()) / 1e6


def _calls(worker: Worker, clock: event_clock.Clock, calls: int) -> Seen:
    """Calls that are asked for while the one before runs, as those of an engine."""
    asked, done, cost, anchors, marks = [], [], [], [], []
    scheduled, accepted = np.full(64, 4), torch.full((64,), 3, dtype=torch.int32, device=worker.device)
    worker.finish()
    with worker.no_waiting():
        for call in range(calls):
            began = time.monotonic_ns()
            clock.begin(call)
            clock.count(requests=64, tokens=320, prefill=0)
            asked.append(time.monotonic_ns())
            clock.start(Stage.FORWARD)
            before = time.monotonic_ns()
            worker.spin(BUSY_MS)
            after = time.monotonic_ns()
            clock.stop(Stage.FORWARD)
            clock.drafts(scheduled, accepted)
            marks.append(worker.mark())
            clock.commit()
            cost.append(time.monotonic_ns() - began - (after - before))
            anchors.append(clock.anchor if isinstance(clock, EventClock) else None)
            if call:
                marks[call - 1].wait()
                done.append(time.monotonic_ns())
        marks[-1].wait()
        done.append(time.monotonic_ns())
    clock.flush()
    taken = len({id(anchor) for anchor in anchors}) if isinstance(clock, EventClock) else None
    return Seen(np.array(asked), np.array(done), np.array(cost), taken)
