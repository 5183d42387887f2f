"""What passes cost and how many drafts are accepted, from the stage clock of a running engine.

V       of the first verifier, from the inputs to the sample: what waits for drafts does not count
t       the drafting alone
host    what a step takes beyond V + t (one batch, in turn) or max(V, t) (else): messages, the engine process, and
        what of Python is between two passes
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from worker.minedraft.stages import DRAFTER, Records, Stage, StageReader, ring_path, verifier_name
from worker.strategies.acceptance import Acceptance
from worker.strategies.costs import Costs
from worker.strategies.modes.prompts import Prompts
from worker.strategies.seam import Way

#: How often the clock is read (seconds).
_READ_S = 0.25
#: A step that takes more than so many times what its passes do was none: there was nothing to do.
_IDLE = 10
#: Passes that are enough to know what they cost, each time that the clock is read.
_NEWEST = 64
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
        self._asked: dict[int, tuple[int, int]] = {}  # by call: how rows took turns, and drafts for its rows
        self._before: _Pass | None = None  # the verifier's last one

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
        passes = _passes(done)
        for one in passes[-_NEWEST:]:
            self.costs.verified(one.requests, one.tokens, one.ms)
            answered = one.requests - one.prefill + one.drafted
            self.prompts.add(one.tokens - answered, one.requests + one.accepted)
        self._learn_acceptance(done, passes)
        steps = passes if self._before is None else [self._before, *passes]
        for one, following in pairwise(steps[-_NEWEST:]):
            self._learn_step(one, following)
        self._before = passes[-1]

    def _learn_drafting(self, drafted: Records) -> None:
        done = drafted[(drafted["begin"][:, Stage.DRAFT] > 0) & (drafted["end"][:, Stage.DRAFT] > 0)][-_NEWEST:]
        took = (done["end"][:, Stage.DRAFT] - done["begin"][:, Stage.DRAFT]) / _NS_PER_MS
        counts = (done[name].tolist() for name in ("call", "requests", "tokens", "asked"))
        for call, requests, tokens, asked, ms in zip(*counts, took.tolist(), strict=True):
            self._draft_ms[call] = ms
            self.costs.drafted(requests, tokens, asked, ms)
        _keep_newest(self._draft_ms)

    def _learn_acceptance(self, done: Records, passes: list[_Pass]) -> None:
        """What became of drafts, and how many there were of those that the call before of the same batch asked for.

        Where that asked for none, what was verified was found (`strategies/sources/`): it says nothing of the draft
        model's. What is found in place of the draft model's is counted as that.
        """
        modelled, seen = [], Counter[tuple[int, str]]()
        for one in passes:
            self._asked[one.call] = one.way, one.asked
            way, asked = self._asked.get(one.call - 2, (None, None))
            modelled.append(one.drafted > 0 and asked != 0)
            if asked is not None and way != Way.AHEAD and not one.prefill:
                seen[asked, "rows"] += one.requests
                seen[asked, "verified"] += one.drafted
                seen[asked, "accepted"] += one.accepted
        if any(modelled):
            drafted_at, accepted = (done[name][modelled].sum(axis=0) for name in ("drafted_at", "accepted"))
            self.acceptance.add(drafted_at, accepted)
        for asked in {asked for asked, _ in seen}:
            rows, verified, kept = (seen[asked, what] for what in ("rows", "verified", "accepted"))
            self.acceptance.yields.add(asked, rows, verified, kept)
        _keep_newest(self._asked)

    def _learn_step(self, one: _Pass, following: _Pass) -> None:
        """What of the step from one pass to the next one hides nowhere, where both are alike and few rows read."""
        if (one.way, one.asked) != (following.way, following.asked) or 4 * one.prefill > one.requests:
            return
        # Two batches: while this one is verified, the drafter is at that of the call before.
        draft_ms = self._draft_ms.get(one.call - 1 if one.way == Way.TWO else one.call)
        alone = one.way == Way.TWO and following.call != one.call + 1
        if draft_ms is None or alone:
            return
        in_turn = one.way == Way.ONE and one.asked > 0
        passes_ms = one.ms + draft_ms if in_turn else max(one.ms, draft_ms)
        step_ms = following.begin_ms - one.begin_ms
        if step_ms < _IDLE * passes_ms:
            self.costs.waited(Way(one.way), max(0.0, step_ms - passes_ms), drafting=one.asked > 0)


class _Pass(NamedTuple):
    """A pass of the verifier, in plain numbers: numpy takes longer for one than for a hundred."""

    call: int
    requests: int
    tokens: int
    drafted: int
    prefill: int
    asked: int
    way: int
    accepted: int
    begin_ms: float
    ms: float


def _passes(done: Records) -> list[_Pass]:
    names = ("call", "requests", "tokens", "drafted", "prefill", "asked", "way")
    begin, end = done["begin"][:, Stage.PREPARE], done["end"][:, Stage.SAMPLE]
    columns = (*(done[name] for name in names), done["accepted"].sum(axis=1), begin / _NS_PER_MS)
    lists = (column.tolist() for column in (*columns, (end - begin) / _NS_PER_MS))
    return [_Pass(*fields) for fields in zip(*lists, strict=True)]


def _keep_newest(by_call: dict[int, Any]) -> None:
    for call in list(by_call)[:-_KEPT]:
        del by_call[call]
