"""Slices, messages and the part of a timeline to look at, of made-up engines."""

import numpy as np
import pytest
from timelines import MS, READING, REQUESTS, ahead, cut, one_batch, two_batches

from worker.lab.timeline import FIRST, TraceError, facts, messages, slices, steady_calls, stretches, window
from worker.minedraft.stages import DRAFTER, ENGINE, RECORD, Stage
from worker.strategies.seam import Way


def test_slices_of_a_call_of_two_batches() -> None:
    records = cut(two_batches(), 5, 5)
    of_verifier, of_drafter, of_engine = (slices(rank, records[rank], two=True) for rank in (FIRST, DRAFTER, ENGINE))
    assert [piece.name for piece in of_verifier] == [
        "wait for drafts",
        "verify",
        "prepare",
        "forward",
        "sample",
        "send",
    ]
    assert [piece.name for piece in of_drafter] == ["prepare", "wait for sampled", "draft", "send"]
    assert [piece.name for piece in of_engine] == ["schedule", "update"]
    assert {(piece.batch, piece.call) for piece in (*of_verifier, *of_drafter, *of_engine)} == {("A", 5)}
    verify = of_verifier[1]
    assert verify.args == {
        **{"call": 5, "requests": 32, "tokens": 128, "prefill": 0, "drafted": 96, "accepted": 52},
        **{"asked": 0, "way": "two batches"},
    }
    assert (verify.begin, verify.end) == (of_verifier[2].begin, of_verifier[4].end)
    assert of_drafter[2].args == {
        **{"call": 5, "requests": 32, "tokens": 128, "prefill": 0, "asked": 0, "way": "two batches"}
    }
    assert [piece.args for piece in of_engine] == [{"call": 5}, {}]


def test_one_batch_has_no_name() -> None:
    pieces = slices(FIRST, cut(one_batch(draft=10), 5, 5)[FIRST], two=False)
    assert [piece.name for piece in pieces] == ["verify", "prepare", "forward", "sample", "draft"]
    assert {piece.batch for piece in pieces} == {""}
    assert not any("way" in piece.args for piece in pieces)


def test_a_stage_that_did_not_happen_is_no_slice() -> None:
    records = np.zeros(2, RECORD)
    records["begin"][:, Stage.SEND], records["end"][1, Stage.SEND] = 5, 6
    assert [(piece.name, piece.begin, piece.end) for piece in slices(DRAFTER, records, two=True)] == [("send", 5, 6)]


def test_what_was_sampled_goes_to_its_draft_and_drafts_to_the_next_pass_but_one() -> None:
    records = cut(two_batches(), 5, 8)
    lanes = [slices(rank, records[rank], two=True) for rank in (FIRST, DRAFTER)]
    found = [(sent.call, used.name, used.call) for sent, used, _ in messages(lanes[0], lanes[1])]
    assert found == [(call, "draft", call) for call in range(5, 9)] + [(5, "verify", 7), (6, "verify", 8)]
    assert all(sent.end <= used.begin for sent, used, _ in messages(lanes[0], lanes[1]))
    assert [down for *_, down in messages(lanes[0], lanes[1])] == [True] * 4 + [False] * 2


def test_what_was_sampled_is_too_late_for_a_draft_ahead_of_it_and_decides_what_is_sent() -> None:
    records = cut(ahead(), 5, 8)
    lanes = [slices(rank, records[rank], two=True) for rank in (FIRST, DRAFTER)]
    found = [(sent.call, used.name, used.call, down) for sent, used, down in messages(lanes[0], lanes[1])]
    assert found == [(5, "send", 5, True), (7, "send", 7, True), (5, "verify", 7, False)]
    assert all(sent.end <= used.begin for sent, used, _ in messages(lanes[0], lanes[1]))
    assert lanes[1][0].args["way"] == "ahead"


def test_stretches_are_calls_for_which_the_same_was_chosen() -> None:
    verifier = two_batches(6)[FIRST]
    verifier["asked"], verifier["way"][3:5] = 3, Way.AHEAD
    verifier["asked"][4] = 2
    begins = verifier["begin"][:, Stage.PREPARE].tolist()
    assert stretches(verifier, 99 * MS) == [
        (begins[0], begins[3], "two batches, 3 drafts"),
        (begins[3], begins[4], "ahead, 3 drafts"),
        (begins[4], begins[5], "ahead, 2 drafts"),
        (begins[5], 99 * MS, "two batches, 3 drafts"),
    ]
    assert stretches(verifier[:0], 99 * MS) == []


def test_a_window_is_from_the_middle_of_what_is_steady() -> None:
    records = two_batches(40)
    shown = window(records, steps=8)
    begins = records[FIRST]["begin"][:, Stage.PREPARE]
    within = records[FIRST]["call"][(begins >= shown.begin) & (begins < shown.end)]
    assert within.tolist() == list(range(17, 25))
    assert set(within) <= set(steady_calls(records))
    assert shown.end == begins[24]
    for rank, of_rank in shown.records.items():
        assert (of_rank["end"].max(axis=1) > shown.begin).all()
        assert np.isin(np.arange(18, 24), of_rank["call"]).all(), rank


def test_a_window_prefers_full_batches() -> None:
    records = two_batches(40)
    records[FIRST]["requests"][:30] = 4
    shown = window(records, steps=4)
    assert shown.begin >= records[FIRST]["begin"][30, Stage.PREPARE]


def test_a_window_without_a_steady_part_is_all_there_is() -> None:
    records = cut(two_batches(), 1, READING)
    shown = window(records, steps=8)
    assert (steady_calls(records).size, len(shown.records[FIRST])) == (0, 2)
    assert shown.end - shown.begin > 2 * 25 * MS


@pytest.mark.parametrize(
    ("records", "times", "share"),
    [
        (two_batches(verify=100, draft=40, jitter=0), (100, 40, 100.4), 0.9975),
        (ahead(verify=100, draft=40), (100, 40, 102), 1),
        (one_batch(verify=100, draft=40), (100, 40, 142.2), None),
        (one_batch(verify=100), (100, None, 102.2), None),
    ],
)
def test_facts(records: dict[str, np.ndarray], times: tuple[float | None, ...], share: float | None) -> None:
    found = facts(records)
    approx = tuple(None if ms is None else pytest.approx(ms) for ms in times)
    assert (found.verify_ms, found.draft_ms, found.step_ms) == approx
    assert found.hidden_share == (None if share is None else pytest.approx(share, abs=1e-5))
    assert found.requests == REQUESTS


@pytest.mark.parametrize("records", [{}, {FIRST: np.zeros(0, RECORD)}, {FIRST: np.zeros(3, RECORD)}])
def test_nothing_verified_is_an_error(records: dict[str, np.ndarray]) -> None:
    with pytest.raises(TraceError, match="nothing was verified"):
        window(records, steps=8)
