"""Do the two batches overlap: what the stage records of a run say, and what is asked of them. Pure."""

from dataclasses import dataclass

import numpy as np
from gpu.parts import Checks

from worker.minedraft.measures import Summary, steady, summary
from worker.minedraft.stages import Records, Stage

#: Calls at the start that are not counted.
WARM = 20
#: Fewer steady calls say nothing.
LEAST = 40
#: The share of drafting that a verify pass must hide.
HIDDEN = 0.9
#: What a device may do nothing for between two passes (ms), where nothing but the engine is to blame.
GAP_MS = 1.0


@dataclass(frozen=True, slots=True)
class Overlap:
    """A run.

    Attributes:
        found: its summary.
        gap_ms: median time from the end of a pass to where the next call begins on the device, that is, not waiting for
            drafts; None: nothing was measured.
    """

    found: Summary
    gap_ms: float | None

    @property
    def measured(self) -> bool:
        """Whether there is enough to judge."""
        times = (self.found.verify_ms, self.found.draft_ms, self.found.step_ms, self.found.hidden_share, self.gap_ms)
        return self.found.steady_calls >= LEAST and None not in times

    @property
    def step_over_longer(self) -> float:
        """A step over the longer of V and t: 1 is all that can be had."""
        assert self.found.step_ms
        return self.found.step_ms / max(self.found.verify_ms or 0.0, self.found.draft_ms or 0.0)


def overlap_of(verifier: Records, drafter: Records) -> Overlap:
    """What both ranks recorded, without the first calls."""
    if not len(verifier) or not len(drafter):
        return Overlap(summary(verifier, drafter), None)
    first = verifier["call"][0] + WARM
    verifier, drafter = (records[records["call"] >= first] for records in (verifier, drafter))
    return Overlap(summary(verifier, drafter), _gap_ms(verifier, drafter))


def _gap_ms(verifier: Records, drafter: Records) -> float | None:
    at = np.searchsorted(verifier["call"], steady(verifier, drafter))
    if not at.size:
        return None
    waits = verifier["begin"][at + 1, Stage.RECV]  # of the call after each
    return float(np.median(waits - verifier["end"][at, Stage.SAMPLE])) / 1e6


def judge(checks: Checks, run: Overlap, *, alone: bool) -> None:
    """Say what came of a run.

    Args:
        checks: where to.
        run: it.
        alone: whether each rank has a GPU of its own; where they share one there can be no overlap.
    """
    why = "what two batches are for"
    if not run.measured:
        said = f"{run.found.steady_calls} steady calls"
        checks.judge("overlap is measured", said, f"{LEAST} or more", ok=False, why="fewer say nothing")
        return
    assert run.found.hidden_share is not None
    assert run.gap_ms is not None
    checks.report("step over the longer of V and t", f"{run.step_over_longer:.3f}", why=why, limit="1 at best")
    hidden, gap = f"{run.found.hidden_share:.3f}", f"{run.gap_ms:.3f} ms"
    above, below = f"above {HIDDEN:g}", f"below {GAP_MS:g} ms"
    verify_ms, draft_ms = run.found.verify_ms, run.found.draft_ms
    assert verify_ms is not None
    assert draft_ms is not None
    if not alone:
        checks.report("hidden share", hidden, why=why, limit=f"{above} on GPUs of their own")
        checks.report("gap between passes", gap, why=why, limit=f"{below} on GPUs of their own")
        return
    if draft_ms <= verify_ms:
        checks.judge("hidden share", hidden, above, ok=run.found.hidden_share > HIDDEN, why=why)
    else:
        checks.report("hidden share, where drafting takes longer", hidden, why=why, limit=above)
    checks.judge("gap between passes", gap, below, ok=run.gap_ms < GAP_MS, why="the next call waits on the device")
