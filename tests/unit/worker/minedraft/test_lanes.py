"""What one rank does with drafts in each call; `test_protocol.py` has what all of them do together."""

from pathlib import Path

import pytest
import torch
from steps import DRAFTS, MemoryLink, Step, step, table

from worker.minedraft.lanes import CallNumbers, DrafterLane, VerifierLane, way_of
from worker.minedraft.link import REJECTED, LinkError
from worker.minedraft.relay import NO_DRAFT
from worker.minedraft.stages import Stage, StageClock, StageReader
from worker.strategies.seam import Way


def test_a_row_without_a_proposal_has_none() -> None:
    """vLLM does not draft when a request is about to fill the context."""
    link = MemoryLink()
    lane = VerifierLane(link, StageClock(None), sends=True, vocabulary=2)
    for call in (step(reading={"r0": 9, "r1": 9}), step()):
        lane.begin(call)
        if call.num_scheduled_tokens:
            lane.sampled(call, table([[1], [2]]), ["r0", "r1"])
            link.send_drafts(table([[1, 2, 3], [4, 5, 6]]))
            link.send_proposals(torch.tensor([[[torch.nan, torch.nan]] * 3, [[0.25, 0.75]] * 3]))
    lane.begin(step({"r0": 3, "r1": 3}))
    assert {request: rows.tolist() for request, rows in lane.proposals.items()} == {"r1": [[0.25, 0.75]] * 3}


def test_a_verifier_reports_rows_that_lack_drafts_and_exchanges_none_that_were_not_asked_for() -> None:
    link = MemoryLink()
    lane = VerifierLane(link, StageClock(None), sends=True)
    assert verified(lane, step(reading={"r0": 9, "r1": 9})) == {}
    assert lane.verified is None
    link.send_drafts(table([[1, NO_DRAFT, NO_DRAFT], [NO_DRAFT] * 3]))
    lane.begin(step())
    call = step({"r0": 3, "r1": 3}, asked=0)
    assert verified(lane, call) == {"r0": [1]}
    assert lane.verified == {"r0": 1, "r1": 0}
    assert call.num_scheduled_tokens == {"r0": 2, "r1": 1}
    lane.begin(step())
    assert verified(lane, step({"r0": 3, "r1": 3})) == {}, "nothing was received"
    assert lane.verified == {"r0": 0, "r1": 0}


def test_the_drafter_knows_which_drafts_are_its_own_and_which_are_missing() -> None:
    lane = DrafterLane(MemoryLink(), StageClock(None))
    call = step(reading={"r0": 9, "r1": 9, "r2": 9})
    lane.begin(call)
    lane.drafted(call, table([[4, 5, NO_DRAFT], [6, 7, 8], [1, 2, 3]]))
    call = step({"r0": 3, "r1": 2}, grammar=True)
    call.num_scheduled_tokens["r2"], call.scheduled_spec_decode_tokens["r2"] = 3, [11, 12]
    lane.begin(call)
    assert call.scheduled_spec_decode_tokens == {"r0": [4, 5, 0], "r1": [6, 7], "r2": [11, 12]}
    assert lane.judged == {"r0": 2, "r1": 2}
    assert lane.missing == {"r0": 1}


def test_two_batches_take_turns_unless_the_step_says_otherwise() -> None:
    class Plain:
        """A `SchedulerOutput` of vLLM's own."""

    assert way_of(Plain()) is Way.TWO  # type: ignore[arg-type]
    call = step()
    call.way = 2  # type: ignore[assignment] # as it travels
    assert way_of(call) is Way.AHEAD


def numbers(*calls: Step, last: int = 0) -> list[int]:
    counted = CallNumbers(last)
    return [counted.next(call) for call in calls]


def test_calls_of_two_batches_are_numbered_one_by_one() -> None:
    assert numbers(step({"a": 3}), step({"b": 3}), step({"a": 3}), step(), step({"a": 3})) == [1, 2, 3, 4, 5]


def test_a_batch_alone_leaves_the_other_ones_numbers_out() -> None:
    assert numbers(step({"a": 3, "b": 3}), step({"b": 3}), step({"b": 0}), step({"c": 0, "b": 1})) == [1, 3, 5, 7]


def test_who_reads_a_prompt_in_consecutive_calls_is_not_alone() -> None:
    assert numbers(step({"a": 3}, reading={"b": 9}), step({"c": 3}, reading={"b": 9}), step({"a": 3})) == [1, 2, 3]


def test_a_batch_is_alone_when_some_of_it_come_again() -> None:
    assert numbers(step({"a": 3}), step({"b": 3, "a": 3}, reading={"c": 9}), step({"c": 0})) == [1, 3, 5]


def test_an_empty_call_lies_between_two_of_a_batch() -> None:
    assert numbers(step({"a": 3}), step(), step({"a": 3})) == [1, 2, 3]


def test_who_comes_later_counts_on() -> None:
    assert numbers(step(reading={"a": 9}), step({"a": 3}), last=41) == [42, 44]


def test_a_verifier_that_does_not_send_records_all_the_same(tmp_path: Path) -> None:
    link = MemoryLink()
    clock = StageClock(tmp_path / "ring")
    lane = VerifierLane(link, clock, sends=False)
    lane.begin(call := step({"r0": 1}))
    lane.sampled(call, table([[5, REJECTED]]))
    clock.commit()
    assert link.down.empty()
    (record,) = StageReader(tmp_path / "ring").read()
    assert (record["requests"], record["drafted"]) == (1, 0)


def test_zeros_that_stand_for_missing_drafts_are_not_counted_even_where_they_are_right(tmp_path: Path) -> None:
    link, clock = MemoryLink(), StageClock(tmp_path / "ring")
    lane = VerifierLane(link, clock, sends=True)
    verified(lane, step(reading={"r0": 9, "r1": 9, "r2": 9}))
    link.send_drafts(table([[1, 2, NO_DRAFT], [3, NO_DRAFT, NO_DRAFT], [NO_DRAFT] * 3]))
    lane.begin(step())
    lane.begin(call := step({"r0": 3, "r1": 3, "r2": 2}, grammar=True))
    assert call.scheduled_spec_decode_tokens == {"r0": [1, 2, 0], "r1": [3, 0, 0], "r2": [0, 0]}
    x = REJECTED
    lane.sampled(call, table([[1, 2, 0, 5], [3, 7, x, x], [0, 7, x, x]]))
    clock.commit()
    assert lane.verified == {"r0": 2, "r1": 1, "r2": 0}
    (record,) = StageReader(tmp_path / "ring").read()
    assert record["drafted"] == 3
    assert record["drafted_at"][:3].tolist() == [2, 1, 0]
    assert record["accepted"][:3].tolist() == [2, 1, 0]


def test_a_verifier_records_what_it_waited_for_and_what_was_accepted(tmp_path: Path) -> None:
    clock = StageClock(tmp_path / "ring")
    link = MemoryLink()
    lane = VerifierLane(link, clock, sends=True)
    first = step({"r0": 0, "r1": 0, "r2": 0, "r3": 0})
    verified(lane, first)
    link.send_drafts(table([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, NO_DRAFT, NO_DRAFT]]))
    lane.begin(step())
    call = step({"r0": 3, "r1": 3, "r2": 0, "r3": 3}, reading={"r4": 40, "r5": 1}, asked=2)
    call.way = Way.ONE
    lane.begin(call)
    x = REJECTED
    lane.sampled(call, table([[1, 2, x, x], [1, x, x, x], [1, x, x, x], [1, 2, x, x], [1, x, x, x], [1, x, x, x]]))
    clock.commit()

    (record,) = StageReader(tmp_path / "ring").read()
    assert record["call"] == 3
    assert (record["asked"], record["way"]) == (2, Way.ONE)
    assert (record["requests"], record["tokens"], record["prefill"]) == (6, 4 + 4 + 1 + 2 + 40 + 1, 1)
    assert record["drafted"] == 7
    assert record["drafted_at"][:4].tolist() == [3, 2, 2, 0]
    assert record["accepted"][:4].tolist() == [2, 0, 0, 0]
    for stage in (Stage.RECV, Stage.SEND):
        assert 0 < record["begin"][stage] <= record["end"][stage]
    assert record["end"][Stage.RECV] <= record["begin"][Stage.PREPARE] <= record["begin"][Stage.SEND]


def test_an_empty_call_leaves_no_record(tmp_path: Path) -> None:
    link, clock = MemoryLink(), StageClock(tmp_path / "ring")
    for lane in (VerifierLane(link, clock, sends=True), DrafterLane(link, clock)):
        clock.begin(0)
        lane.begin(step())
        clock.commit()
    assert StageReader(tmp_path / "ring").read()["call"].tolist() == [0, 0], "no call of a lane's own was begun"


def test_the_drafter_takes_what_vllms_sampler_would_give() -> None:
    """As many columns as the call's longest drafts need, though messages are always as wide as drafts can be."""
    link = MemoryLink()
    lane = DrafterLane(link, StageClock(None))
    for call, columns in (
        (step({"r0": 1, "r1": 2}, grammar=True), 3),
        (step({"r0": 1}, reading={"r1": 9}), 1),
        (step(reading={"r0": 9, "r1": 9}), 1),
    ):
        lane.begin(call)
        link.down.put(table([[1, REJECTED, REJECTED, REJECTED]] * 2))
        assert lane.sampled(call).shape == (2, columns)


def test_the_drafter_knows_its_drafts_before_they_have_arrived() -> None:
    link = MemoryLink()
    lane = DrafterLane(link, StageClock(None))
    call = step(reading={"r0": 9})
    lane.begin(call)
    lane.drafted(call, table([[4, 5, 6]]))
    call = step({"r0": DRAFTS})
    lane.begin(call)
    assert call.scheduled_spec_decode_tokens == {"r0": [4, 5, 6]}
    assert link.up.get_nowait().tolist() == [[4, 5, 6]]


def test_drafts_that_do_not_come_end_the_call() -> None:
    lane = VerifierLane(MemoryLink(), StageClock(None), sends=True)
    for call in (step({"r0": 1}), step({"r1": 1})):
        lane.begin(call)
        lane.sampled(call, table([[1, REJECTED]]))
    with pytest.raises(LinkError):
        lane.begin(step({"r0": 1}))


def verified(lane: VerifierLane, call: Step) -> dict[str, list[int]]:
    """What a call filled in; it ends, too."""
    lane.begin(call)
    if call.num_scheduled_tokens:
        lane.sampled(call, table([[1, REJECTED]] * len(call.num_scheduled_tokens)))
    return call.scheduled_spec_decode_tokens


def test_a_batch_alone_gets_the_drafts_of_its_call_before() -> None:
    """Here the drafts are late by a whole call, as between two batches."""
    link = MemoryLink()
    lane = VerifierLane(link, StageClock(None), sends=True)
    verified(lane, step(reading={"r0": 9}))
    assert verified(lane, step(reading={"r1": 9})) == {}
    link.send_drafts(table([[1, 2, 3]]))
    assert verified(lane, step({"r0": 3})) == {"r0": [1, 2, 3]}
    assert lane.call == 3
    link.send_drafts(table([[4, 5, 6]]))
    link.send_drafts(table([[7, 8, 9]]))
    assert verified(lane, step({"r0": 3, "r1": 3})) == {"r0": [7, 8, 9], "r1": [4, 5, 6]}
    assert lane.call == 5


def test_another_drafter_owes_nothing_and_is_asked_for_nothing_of_before() -> None:
    class Closed(MemoryLink):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    old, new = Closed(), Closed()
    lane = VerifierLane(old, StageClock(None), sends=True)
    old.send_drafts(table([[1, 2, 3]]))
    verified(lane, step(reading={"r0": 9}))
    verified(lane, step(reading={"r1": 9}))
    verified(lane, step({"r0": 3}))
    lane.rejoin(new)
    assert (old.closed, new.closed) == (1, 0)
    assert verified(lane, step({"r1": 3}, reading={"r0": 9})) == {}
    new.send_drafts(table([[4, 5, 6], [7, 8, 9]]))
    assert verified(lane, step({"r0": 3, "r1": 3})) == {"r0": [7, 8, 9], "r1": [4, 5, 6]}
    assert lane.call == 6, "numbers go on"
    assert len(lane._table) == 2
    lane.close()
    assert new.closed == 1


def test_a_drafter_that_joins_counts_as_the_others_do() -> None:
    link = MemoryLink()
    lane = DrafterLane(link, StageClock(None), last=7)
    assert lane.call == 7
    for call, number in ((step(reading={"r0": 9}), 8), (step({"r0": 3}), 10), (step(), 11), (step({"r0": 3}), 12)):
        lane.begin(call)
        assert lane.call == number
