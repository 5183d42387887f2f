"""A timeline as a trace file.

The format is Google's "Trace Event Format" (2016), which Perfetto and Chrome's about:tracing read: complete events `X`,
flow arrows `s` and `f`, counters `C`, names `M`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from worker.lab.timeline import FIRST, WAYS, Slice, batch_of, messages, slices, verified
from worker.minedraft.stages import DRAFTER, ENGINE, Records, Stage
from worker.strategies.seam import Way

_NS_PER_US = 1e3
_PROCESS = 1


def events(records: Mapping[str, Records], *, virtual: bool, title: str) -> dict[str, Any]:
    """The timeline as an object of Chrome's trace format, ready for `json.dump`.

    A thread a rank, a slice a stage, arrows from what was sampled to its draft and from drafts to the pass that
    verifies them, and a counter of the requests of each batch. Where there is a drafter a second counter says how rows
    take turns: the drafts that are asked for, in that way's series. Times are µs from the first slice on.

    Args:
        records: of each rank, by name.
        virtual: whether devices were imagined, which is then part of the title.
        title: of the process.

    Raises:
        TraceError: nothing was verified.
    """
    verifier = verified(records)
    two = DRAFTER in records
    title = f"{title} (virtual devices)" if virtual else title
    ranks = sorted(records, key=lambda rank: (rank == ENGINE, rank == DRAFTER, rank))
    lanes = {thread: slices(rank, records[rank], two=two) for thread, rank in enumerate(ranks, start=1)}
    origin = min(piece.begin for lane in lanes.values() for piece in lane)
    timed = [_complete(piece, thread) for thread, lane in lanes.items() for piece in lane]
    timed += _counts(verifier, two)
    if two:
        timed += _choices(verifier)
        ends = 1 + ranks.index(FIRST), 1 + ranks.index(DRAFTER)
        timed += _arrows(lanes[ends[0]], lanes[ends[1]], ends)
    timed.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    for event in timed:
        event["ts"] = (event["ts"] - origin) / _NS_PER_US
        if "dur" in event:
            event["dur"] /= _NS_PER_US
    return {
        "traceEvents": [*_names(title, ranks), *timed],
        "displayTimeUnit": "ms",
        "otherData": {"title": title, "virtual": virtual},
    }


def _names(title: str, ranks: list[str]) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": _PROCESS, "args": {"name": title}}
    for thread, rank in enumerate(ranks, start=1):
        at = {"ph": "M", "pid": _PROCESS, "tid": thread}
        yield {**at, "name": "thread_name", "args": {"name": "engine core" if rank == ENGINE else rank}}
        yield {**at, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _complete(piece: Slice, thread: int) -> dict[str, Any]:
    batch = [piece.batch] if piece.batch else []
    return {
        "ph": "X",
        "name": " ".join([piece.name, *batch, f"#{piece.call}"]) if piece.args else piece.name,
        "cat": piece.name,
        "pid": _PROCESS,
        "tid": thread,
        "ts": piece.begin,
        "dur": piece.end - piece.begin,
        "args": dict(piece.args),
    }


def _counts(verifier: Records, two: bool) -> Iterator[dict[str, Any]]:
    """Requests of each batch when a pass begins; a batch that the call before did not verify has none."""
    requests = dict(zip(verifier["call"].tolist(), verifier["requests"].tolist(), strict=True))
    begins = verifier["begin"][:, Stage.PREPARE].tolist()
    for (call, now), begin in zip(requests.items(), begins, strict=True):
        both = {batch_of(call): now, batch_of(call - 1): requests.get(call - 1, 0)}
        args = dict(sorted(both.items())) if two else {"requests": now}
        yield {"ph": "C", "name": "requests", "pid": _PROCESS, "ts": begin, "args": args}


def _choices(verifier: Records) -> Iterator[dict[str, Any]]:
    """What was chosen for each call: the drafts asked for each row, in the way's own series."""
    begins = verifier["begin"][:, Stage.PREPARE].tolist()
    for way, asked, begin in zip(verifier["way"].tolist(), verifier["asked"].tolist(), begins, strict=True):
        args = {WAYS[one]: asked if one == way else 0 for one in Way}
        yield {"ph": "C", "name": "drafts asked", "pid": _PROCESS, "ts": begin, "args": args}


def _arrows(verifier: list[Slice], drafter: list[Slice], threads: tuple[int, int]) -> Iterator[dict[str, Any]]:
    for number, (sent, used, down) in enumerate(messages(verifier, drafter), start=1):
        source, sink = threads if down else threads[::-1]
        flow = {"name": "sampled" if down else "drafts", "cat": "link", "id": number, "pid": _PROCESS}
        yield {**flow, "ph": "s", "tid": source, "ts": sent.begin}
        yield {**flow, "ph": "f", "bp": "e", "tid": sink, "ts": used.begin}
