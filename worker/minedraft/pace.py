"""What passes cost and how many drafts are accepted, from the stage clock of a running engine.

V       of the first verifier, from the inputs to the sample: what waits for drafts does not count
t       the drafting alone
host    what a step takes beyond V + t (one batch, in turn) or max(V, t) (else): messages, the engine process, and
        what of Python is between two passes
"""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from worker.minedraft.stages import DRAFTER, Records, Stage, StageReader, ring_path, verifier_name
from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.modes.prompts import Prompts
from worker.strategies.seam import Way

#: How often the clock is read (seconds).
_READ_S = 0.25
#: A step that takes more than so many times what its passes do was none: there was nothing to do.
_IDLE = 10
#: Calls of which it is kept what steps that are still to be read need.
_KEPT = 64
_NS_PER_MS = 1e6


class Pace:
    """Follows the clock of a running engine.

    Args:
        folder: the engine's; None: nothing is ever known.

    Attributes:
        costs: of passes.
        acceptance: of drafts.
        prompts: that are read beside the rows that are answered.
    """

    def __init__(self, folder: Path | None) -> None:
        self.costs, self.acceptance, self.prompts = Costs(), Acceptance(), Prompts()
        self._readers = (
            []
            if folder is None
            else [StageReader(ring_path(folder, verifier_name(0))), StageReader(ring_path(folder, DRAFTER))]
        )
        self._due = 0.0
        self._draft_ms: dict[int, float] = {}  # by call
        self._asked: dict[int, int] = {}  # by call: drafts for its rows
        self._before: Records | None = None  # the verifier's last record

    def refresh(self) -> None:
        """Take in what was recorded, if it is time to look."""
        clock = time.monotonic()
        if self._readers and clock >= self._due:
            self._due = clock + _READ_S
            # The verifier's first: the drafter's records of the calls before are there by then.
            verified, drafted = [reader.read() for reader in self._readers]
            self.learn(verified, drafted)

    def learn(self, verified: Records, drafted: Records) -> None:
        """Take in records.

        Args:
            verified: the first verifier's, oldest first.
            drafted: the drafter's, up to the same moment.
        """
        self._learn_drafting(drafted)
        done = verified[(verified["begin"][:, Stage.PREPARE] > 0) & (verified["end"][:, Stage.SAMPLE] > 0)]
        if not done.size:
            return
        for record in done:
            requests, tokens = int(record["requests"]), int(record["tokens"])
            self.costs.verified(requests, tokens, _verify_ms(record))
            answered = requests - int(record["prefill"]) + int(record["drafted"])
            self.prompts.add(tokens - answered, requests + int(record["accepted"].sum()))
        for record in done[done["drafted"] > 0]:
            self.acceptance.add(record["drafted_at"], record["accepted"])
        for record in done:
            self._learn_yield(record)
        steps = done if self._before is None else np.concatenate([self._before, done])
        for record, following in pairwise(steps):
            self._learn_step(record, following)
        self._before = done[-1:]

    def _learn_drafting(self, drafted: Records) -> None:
        done = drafted[(drafted["begin"][:, Stage.DRAFT] > 0) & (drafted["end"][:, Stage.DRAFT] > 0)]
        for record in done:
            ms = float(record["end"][Stage.DRAFT] - record["begin"][Stage.DRAFT]) / _NS_PER_MS
            self._draft_ms[int(record["call"])] = ms
            self.costs.drafted(int(record["requests"]), int(record["tokens"]), int(record["asked"]), ms)
        _keep_newest(self._draft_ms)

    def _learn_yield(self, record: Records) -> None:
        """How many drafts there were of those that were asked for: by the call before of the same batch."""
        call = int(record["call"])
        self._asked[call] = 0 if record["way"] == Way.AHEAD else int(record["asked"])
        asked = self._asked.get(call - 2, 0)
        if asked and not record["prefill"]:
            accepted = int(record["accepted"].sum())
            self.acceptance.yields.add(asked, int(record["requests"]), int(record["drafted"]), accepted)
        _keep_newest(self._asked)

    def _learn_step(self, record: Records, following: Records) -> None:
        """What of the step from one pass to the next one hides nowhere, where both are alike."""
        way, call = Way(int(record["way"])), int(record["call"])
        if record["way"] != following["way"] or record["asked"] != following["asked"]:
            return
        # Two batches: while this one is verified, the drafter is at that of the call before.
        draft_ms = self._draft_ms.get(call - 1 if way is Way.TWO else call)
        alone = way is Way.TWO and following["call"] != call + 1
        if draft_ms is None or alone:
            return
        verify_ms = _verify_ms(record)
        in_turn = way is Way.ONE and record["asked"] > 0
        passes_ms = verify_ms + draft_ms if in_turn else max(verify_ms, draft_ms)
        step_ms = float(following["begin"][Stage.PREPARE] - record["begin"][Stage.PREPARE]) / _NS_PER_MS
        if step_ms < _IDLE * passes_ms:
            self.costs.waited(way, max(0.0, step_ms - passes_ms))


def _keep_newest(by_call: dict[int, Any]) -> None:
    for call in list(by_call)[:-_KEPT]:
        del by_call[call]


def _verify_ms(record: Records) -> float:
    return float(record["end"][Stage.SAMPLE] - record["begin"][Stage.PREPARE]) / _NS_PER_MS
