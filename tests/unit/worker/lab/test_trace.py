"""Trace files are what Chrome's trace event format asks for."""

import json
from collections import defaultdict
from typing import Any

import pytest
from timelines import REQUESTS, ahead, cut, one_batch, two_batches

from worker.lab.timeline import FIRST, TraceError
from worker.lab.trace import events
from worker.minedraft.stages import Records
from worker.strategies.seam import Way


def of_kind(trace: dict[str, Any], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] in kinds]


def counters(trace: dict[str, Any], name: str) -> list[dict[str, int]]:
    return [event["args"] for event in of_kind(trace, "C") if event["name"] == name]


def ns(us: float) -> int:
    return round(us * 1000)


def tensor_parallel() -> dict[str, Records]:
    records = two_batches()
    return {**records, "verifier_1": records[FIRST]}


@pytest.mark.parametrize("records", [two_batches(), tensor_parallel(), ahead(), one_batch(draft=20), one_batch()])
def test_a_trace_is_well_formed(records: dict[str, Records]) -> None:
    trace = events(records, virtual=False, title="a run")
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    timed = of_kind(trace, "X", "s", "f", "C")
    assert of_kind(trace, "M") + timed == trace["traceEvents"]
    times = [event["ts"] for event in timed]
    assert times == sorted(times)
    assert times[0] == 0
    threads = {e["tid"]: e["args"]["name"] for e in of_kind(trace, "M") if e["name"] == "thread_name"}
    assert len(set(threads.values())) == len(threads) == len(records)
    assert {event["tid"] for event in of_kind(trace, "X", "s", "f")} == set(threads)
    assert {event["pid"] for event in trace["traceEvents"]} == {1}
    assert all(event["dur"] >= 0 for event in of_kind(trace, "X"))
    args = [arg for event in of_kind(trace, "X") for arg in event["args"].items()]
    assert all(isinstance(value, str if name == "way" else int) for name, value in args)


@pytest.mark.parametrize("records", [tensor_parallel(), ahead(), one_batch(draft=20)])
def test_slices_of_a_thread_lie_within_or_after_each_other(records: dict[str, Records]) -> None:
    open_until = defaultdict(list)
    for event in of_kind(events(records, virtual=False, title=""), "X"):
        begin, end, around = ns(event["ts"]), ns(event["ts"] + event["dur"]), open_until[event["tid"]]
        while around and around[-1] <= begin:
            around.pop()
        assert not around or end <= around[-1], event
        around.append(end)


def test_each_arrow_goes_from_a_slice_on_to_a_slice() -> None:
    trace = events(two_batches(), virtual=False, title="")
    slices = {(event["tid"], event["ts"]): event for event in reversed(of_kind(trace, "X"))}
    starts, ends = ({event["id"]: event for event in of_kind(trace, kind)} for kind in "sf")
    assert len(of_kind(trace, "s", "f")) == 2 * len(starts)
    assert starts.keys() == ends.keys()
    assert len(starts) == 40 + 38  # of 40 calls, the drafts of the last two are for no pass
    kinds = set()
    for number, start in starts.items():
        end = ends[number]
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert start["ts"] <= end["ts"]
        assert end["bp"] == "e"
        source, sink = (slices[event["tid"], event["ts"]] for event in (start, end))
        kinds.add((start["name"], source["name"], sink["cat"]))
    assert kinds == {("sampled", "send", "draft"), ("drafts", "send", "verify")}


def test_names_of_two_batches() -> None:
    names = {event["name"] for event in of_kind(events(cut(two_batches(), 5, 6), virtual=False, title=""), "X")}
    assert names == {
        *("verify A #5", "verify B #6", "draft A #5", "draft B #6", "schedule A #5", "schedule B #6"),
        *("wait for drafts", "wait for sampled", "prepare", "forward", "sample", "send", "update"),
    }


def test_names_of_one_batch() -> None:
    trace = events(cut(one_batch(draft=9), 5, 5), virtual=False, title="")
    names = {event["name"] for event in of_kind(trace, "X")}
    assert names == {"verify #5", "draft #5", "schedule #5", "prepare", "forward", "sample", "update"}
    assert [event["args"] for event in of_kind(trace, "C")] == [{"requests": REQUESTS}]


def test_requests_of_a_batch_that_ran_empty_are_counted_as_none() -> None:
    records = two_batches(8)
    records[FIRST] = records[FIRST][records[FIRST]["call"] != 6]
    counts = counters(events(records, virtual=False, title=""), "requests")
    assert counts[4:6] == [{"A": REQUESTS, "B": REQUESTS}, {"A": REQUESTS, "B": 0}]


def test_a_counter_says_how_rows_take_turns_and_how_many_drafts_are_asked_for() -> None:
    records = ahead(4)
    records[FIRST]["way"][:2], records[FIRST]["asked"][:2] = [Way.TWO, Way.ONE], [3, 2]
    ahead_of = {"two batches": 0, "one batch": 0, "ahead": 4}
    assert counters(events(records, virtual=False, title=""), "drafts asked") == [
        *({"two batches": 3, "one batch": 0, "ahead": 0}, {"two batches": 0, "one batch": 2, "ahead": 0}),
        *(ahead_of, ahead_of),
    ]
    assert not counters(events(one_batch(draft=9), virtual=False, title=""), "drafts asked")


def test_a_virtual_trace_says_so() -> None:
    trace = events(two_batches(), virtual=True, title="a pair")
    process = next(event for event in trace["traceEvents"] if event["name"] == "process_name")
    assert process["args"]["name"] == trace["otherData"]["title"] == "a pair (virtual devices)"
    assert trace["otherData"]["virtual"]
    assert "virtual" not in events(two_batches(), virtual=False, title="a pair")["otherData"]["title"]


def test_an_idle_engine_has_no_trace() -> None:
    with pytest.raises(TraceError, match="idle"):
        events({}, virtual=False, title="")
