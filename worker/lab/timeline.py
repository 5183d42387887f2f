"""A timeline from stage records: who verified, drafted, waited and scheduled when, and which part of it to look at.

Where there is a drafter, odd calls are batch A and even ones batch B, as calls alternate; elsewhere there is one batch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from worker.minedraft.measures import (
    Calls,
    draft_spans,
    median_ms,
    of_calls,
    share_of,
    steady,
    step_spans,
    verify_spans,
)
from worker.minedraft.stages import DRAFTER, ENGINE, RECORD, Records, Stage, verifier_name
from worker.strategies.seam import Way

#: The rank whose calls are the timeline's steps; all verifiers do the same.
FIRST = verifier_name(0)


class TraceError(Exception):
    """There is no timeline to be had; one line says why."""


class Part(NamedTuple):
    """A kind of slice.

    Attributes:
        name: what is done.
        first: the stage at whose begin it begins.
        last: the stage at whose end it ends.
        of_batch: whether it is named after its batch and call.
        counts: the fields of the record that tell about it.
    """

    name: str
    first: Stage
    last: Stage
    of_batch: bool = False
    counts: tuple[str, ...] = ()


_BATCH = ("requests", "tokens", "prefill", "asked")
#: How rows take turns, in words.
WAYS = {Way.TWO: "two batches", Way.ONE: "one batch", Way.AHEAD: "ahead"}
#: What a verifier does; `prepare`, `forward` and `sample` lie within `verify`. In mode sd it drafts, too.
_VERIFIER = (
    Part("wait for drafts", Stage.RECV, Stage.RECV),
    Part("verify", Stage.PREPARE, Stage.SAMPLE, of_batch=True, counts=(*_BATCH, "drafted")),
    Part("prepare", Stage.PREPARE, Stage.PREPARE),
    Part("forward", Stage.FORWARD, Stage.FORWARD),
    Part("sample", Stage.SAMPLE, Stage.SAMPLE),
    Part("draft", Stage.DRAFT, Stage.DRAFT, of_batch=True, counts=_BATCH),
    Part("send", Stage.SEND, Stage.SEND),
)
_DRAFTER = (
    Part("prepare", Stage.PREPARE, Stage.PREPARE),
    Part("wait for sampled", Stage.RECV, Stage.RECV),
    Part("draft", Stage.DRAFT, Stage.DRAFT, of_batch=True, counts=_BATCH),
    Part("send", Stage.SEND, Stage.SEND),
)
_ENGINE = (
    Part("schedule", Stage.SCHEDULE, Stage.SCHEDULE, of_batch=True),
    Part("update", Stage.UPDATE, Stage.UPDATE),
)


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that a rank did.

    Attributes:
        name: of the `Part`.
        begin: when (ns).
        end: when (ns).
        call: its call.
        batch: `A` or `B`; empty where there is one batch.
        prefill: requests that read their prompt in the call.
        args: what the record says about it.
    """

    name: str
    begin: int
    end: int
    call: int
    batch: str
    prefill: int
    args: Mapping[str, int | str]


def slices(rank: str, records: Records, *, two: bool) -> list[Slice]:
    """What a rank did, by begin; of slices that begin together the longer first, which holds the others.

    Args:
        rank: its name, which says what its stages mean.
        records: its own.
        two: whether there are two batches.
    """
    parts = {DRAFTER: _DRAFTER, ENGINE: _ENGINE}.get(rank, _VERIFIER)
    found = [piece for record in records for part in parts for piece in _slices(part, record, two)]
    return sorted(found, key=lambda piece: (piece.begin, -piece.end))


def _slices(part: Part, record: Any, two: bool) -> Iterator[Slice]:
    begin, end, call = int(record["begin"][part.first]), int(record["end"][part.last]), int(record["call"])
    if begin and end:
        args: dict[str, int | str] = {"call": call} if part.of_batch else {}
        args |= {name: int(record[name]) for name in part.counts}
        if two and part.counts:
            args["way"] = WAYS[Way(record["way"])]
        if part.name == "verify":
            args["accepted"] = int(record["accepted"].sum())
        yield Slice(part.name, begin, end, call, batch_of(call) if two else "", int(record["prefill"]), args)


def batch_of(call: int) -> str:
    """The batch of a call, where there are two."""
    return "A" if call % 2 else "B"


class Message(NamedTuple):
    """A sending, and the slice that it is for.

    Attributes:
        sent: the sending.
        used: what it is for.
        down: whether it goes to the drafter.
    """

    sent: Slice
    used: Slice
    down: bool


def messages(verifier: list[Slice], drafter: list[Slice]) -> Iterator[Message]:
    """Each sending and what it is for, where both are there.

    What was sampled is for the draft of the same call, or, where that was ahead of it, for the choice of what is sent.
    Drafts are for the pass of the next call but one.
    """
    passes = {piece.call: piece for piece in verifier if piece.name == "verify"}
    drafts = {piece.call: piece for piece in drafter if piece.name == "draft"}
    sent_up = {piece.call: piece for piece in drafter if piece.name == "send"}
    for sent in (piece for piece in verifier if piece.name == "send"):
        used = drafts.get(sent.call)
        if used is not None and used.begin < sent.begin:
            used = sent_up.get(sent.call)
        if used is not None:
            yield Message(sent, used, down=True)
    for call, sent in sent_up.items():
        if (used := passes.get(call + 2)) is not None:
            yield Message(sent, used, down=False)


class Stretch(NamedTuple):
    """Calls that follow each other, for all of which the same was chosen: begin and end (ns), and what, in words."""

    begin: int
    end: int
    chosen: str


def stretches(verifier: Records, end: int) -> list[Stretch]:
    """What was chosen when, in an engine with a drafter: how rows take turns, and the drafts asked for each.

    Args:
        verifier: complete passes.
        end: of the last stretch.
    """
    chosen = [
        f"{WAYS[Way(way)]}, {asked} drafts" for way, asked in zip(verifier["way"], verifier["asked"], strict=True)
    ]
    first = [at for at, words in enumerate(chosen) if at == 0 or words != chosen[at - 1]]
    begins = [*verifier["begin"][first, Stage.PREPARE].tolist(), end]
    return [Stretch(begin, until, chosen[at]) for at, begin, until in zip(first, begins, begins[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a timeline: from `begin` to `end` (ns), and the records that reach into it."""

    begin: int
    end: int
    records: Mapping[str, Records]


def window(records: Mapping[str, Records], *, steps: int) -> Window:
    """So many steps that show best what the engine does when it is busy.

    Those with most steady calls, then with most requests, then nearest to the middle; fewer steps where there are no
    more.

    Raises:
        TraceError: nothing was verified.
    """
    verifier = verified(records)
    steps = min(steps, len(verifier))
    quiet = np.isin(verifier["call"], steady_calls(records)).astype(np.int64)
    scores = np.stack([_moving_sum(values, steps) for values in (quiet, verifier["requests"].astype(np.int64))])
    from_middle = np.abs(2 * np.arange(scores.shape[1]) - (scores.shape[1] - 1))
    first = int(np.lexsort([from_middle, -scores[1], -scores[0]])[0])
    begin = int(verifier["begin"][first, Stage.PREPARE])
    after = verifier["begin"][first + steps : first + steps + 1, Stage.PREPARE]
    end = int(after[0]) if len(after) else int(verifier["end"][first + steps - 1].max())
    return Window(begin, end, {rank: _cut(of_rank, begin, end) for rank, of_rank in records.items()})


def steady_calls(records: Mapping[str, Records]) -> Calls:
    """Calls of the steady part (`worker.minedraft.measures.steady`); with one batch, those between two others, all
    without a request that reads its prompt.
    """
    verifier = verified(records)
    two = DRAFTER in records
    alone = verifier[(verifier["prefill"] == 0) & (verifier["way"] != Way.TWO if two else True)]["call"]
    # Where there may be two batches, the numbers of one that is alone leave out the other's turns.
    chosen: Calls = alone[np.isin(alone - 1 - two, alone) & np.isin(alone + 1 + two, alone)]
    return np.union1d(chosen, steady(verifier, records[DRAFTER])) if two else chosen


@dataclass(frozen=True, slots=True)
class Facts:
    """What a timeline's caption says, of the steady part; None where nothing was measured.

    Attributes:
        verify_ms: median V.
        draft_ms: median t.
        step_ms: median step.
        hidden_share: where there is a drafter, draft time inside verify time, of the most that could be.
        requests: most of a batch, over the whole time.
    """

    verify_ms: float | None
    draft_ms: float | None
    step_ms: float | None
    hidden_share: float | None
    requests: int


def facts(records: Mapping[str, Records]) -> Facts:
    """Find them.

    Raises:
        TraceError: nothing was verified.
    """
    verifier, drafter = verified(records), records.get(DRAFTER)
    calls = steady_calls(records)
    drafts = verifier if drafter is None else drafter
    passes, steps = verify_spans(of_calls(verifier, calls)), step_spans(verifier, calls)
    return Facts(
        verify_ms=median_ms(passes),
        draft_ms=median_ms(draft_spans(of_calls(drafts, calls))),
        step_ms=median_ms(steps),
        hidden_share=None if drafter is None else share_of(draft_spans(drafter), passes, steps),
        requests=int(verifier["requests"].max()),
    )


def verified(records: Mapping[str, Records]) -> Records:
    """The complete passes of the first verifier.

    Raises:
        TraceError: there is none.
    """
    verifier = records.get(FIRST, np.empty(0, RECORD))
    passes: Records = verifier[(verifier["begin"][:, Stage.PREPARE] > 0) & (verifier["end"][:, Stage.SAMPLE] > 0)]
    if not len(passes):
        raise TraceError("nothing was verified in this time: is the engine idle?")
    return passes


def _cut(records: Records, begin: int, end: int) -> Records:
    begins = np.where(records["begin"] > 0, records["begin"], np.iinfo(np.int64).max).min(axis=1)
    reach: Records = records[(begins < end) & (records["end"].max(axis=1) > begin)]
    return reach


def _moving_sum(values: Calls, length: int) -> Calls:
    return np.convolve(values, np.ones(length, np.int64), mode="valid")
