"""How long batches take, by their size, from the stage clock; and whether few rows do better in one batch than in two.

With n rows two batches take 2 max(V(n/2), t(n/2)) for a cycle of all rows, one batch takes V(n) + t(n). When a pass
takes as long for half of the rows, as it does while reading the weights decides, one batch wins unless t is as long
as V.
"""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from worker.minedraft.stages import DRAFTER, Records, Stage, StageReader, ring_path, verifier_name

#: How often the clock is read (seconds).
_READ_S = 0.25
#: The weight of the newest pass of a size in what passes of that size are taken to take.
_NEWEST = 0.2
#: What it must be better by for rows to change from two batches to one, or back: a share, for changing costs a wait.
_MARGIN = 0.05
_NS_PER_MS = 1e6


class Times:
    """Milliseconds by batch size: of sizes seen, a mean that forgets; between them, straight lines."""

    def __init__(self) -> None:
        self._ms: dict[int, float] = {}

    def add(self, requests: int, ms: float) -> None:
        """A pass over so many requests took so long."""
        known = self._ms.get(requests, ms)
        self._ms[requests] = known + _NEWEST * (ms - known)

    @property
    def largest(self) -> int:
        """The largest size seen; 0: none."""
        return max(self._ms, default=0)

    def __call__(self, requests: float) -> float:
        """How long a pass takes; below the smallest size seen as long as that one."""
        sizes = sorted(self._ms)
        return float(np.interp(requests, sizes, [self._ms[size] for size in sizes]))


def one_batch_is_faster(verify: Times, draft: Times, rows: int, *, now: bool = False) -> bool:
    """Whether so many rows take less time in one batch; False where sizes that large were never seen.

    Args:
        verify: V.
        draft: t.
        rows: all that are running.
        now: whether they are in one batch now, where they stay unless two are clearly faster.
    """
    if not rows or rows > min(verify.largest, draft.largest):
        return False
    half = rows / 2
    one, two = verify(rows) + draft(rows), 2 * max(verify(half), draft(half))
    return one < (1 + _MARGIN if now else 1 - _MARGIN) * two


class Pace:
    """Follows the clock of a running engine.

    Args:
        folder: the engine's; None: nothing is ever known.
    """

    def __init__(self, folder: Path | None) -> None:
        self.verify, self.draft = Times(), Times()
        self._readers: Mapping[str, StageReader] = {}
        if folder is not None:
            self._readers = {rank: StageReader(ring_path(folder, rank)) for rank in (verifier_name(0), DRAFTER)}
        self._due = 0.0

    def one_batch_is_faster(self, rows: int, *, now: bool) -> bool:
        """As the function of that name, by all that was recorded until a moment ago."""
        clock = time.monotonic()
        if clock >= self._due:
            self._due = clock + _READ_S
            self._read()
        return one_batch_is_faster(self.verify, self.draft, rows, now=now)

    def _read(self) -> None:
        if self._readers:
            passes = self._readers[verifier_name(0)].read()
            # A pass without drafts, as there are while the drafter is lost, says nothing about one with them.
            _add(self.verify, passes[passes["drafted"] > 0], Stage.PREPARE, Stage.SAMPLE)
            _add(self.draft, self._readers[DRAFTER].read(), Stage.DRAFT, Stage.DRAFT)


def _add(times: Times, records: Records, first: Stage, last: Stage) -> None:
    """Take in the passes that read no prompt."""
    done = (records["prefill"] == 0) & (records["begin"][:, first] > 0) & (records["end"][:, last] > 0)
    ms = (records["end"][:, last] - records["begin"][:, first])[done] / _NS_PER_MS
    for requests, taken in zip(records["requests"][done].tolist(), ms.tolist(), strict=True):
        times.add(requests, taken)
