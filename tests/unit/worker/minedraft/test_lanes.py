"""What one rank does with drafts in each call; `test_protocol.py` has what all of them do together."""

import queue
from pathlib import Path

import pytest
from steps import DRAFTS, MemoryLink, Step, step, table
from torch import Tensor

from worker.minedraft.lanes import DrafterLane, DraftTable, VerifierLane
from worker.minedraft.link import REJECTED, LinkError
from worker.minedraft.stages import Stage, StageClock, StageReader


def filled(drafts: DraftTable, call: Step) -> dict[str, list[int]]:
    drafts.fill(call)
    return call.scheduled_spec_decode_tokens


def test_a_placeholder_without_a_draft_is_token_0() -> None:
    drafts = DraftTable()
    assert filled(drafts, step({"new": 2})) == {"new": [0, 0]}
    drafts.store(["new"], [[5]])
    assert filled(drafts, step({"new": 3})) == {"new": [5, 0, 0]}


def test_no_more_drafts_than_placeholders() -> None:
    drafts = DraftTable()
    drafts.fill(step(reading={"a": 9, "b": 9, "c": 9}))
    drafts.store(["a", "b", "c"], [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert filled(drafts, step({"b": 1, "c": 0, "a": 3})) == {"a": [1, 2, 3], "b": [4]}


def test_the_newest_drafts_count_and_are_kept() -> None:
    drafts = DraftTable()
    drafts.fill(step(reading={"a": 9}))
    drafts.store(["a"], [[1]])
    drafts.store(["a"], [[2]])
    assert filled(drafts, step({"a": 1})) == {"a": [2]}
    assert filled(drafts, step({"a": 1})) == {"a": [2]}, "a request that resumes gets what was last drafted for it"


def test_whoever_has_ended_is_forgotten_even_when_its_message_comes_later() -> None:
    drafts = DraftTable()
    drafts.fill(step({"a": 1, "b": 1}))
    drafts.fill(step({"b": 1}, finished="a"))
    assert len(drafts) == 1
    drafts.store(["a", "b"], [[1], [2]])
    assert len(drafts) == 1
    drafts.fill(step(finished="b unheard-of"))
    assert len(drafts) == 0


def test_a_name_used_again_begins_without_drafts() -> None:
    drafts = DraftTable()
    drafts.fill(step(reading={"a": 9}))
    drafts.store(["a"], [[1]])
    assert filled(drafts, step({"a": 1}, finished="a")) == {"a": [0]}


def test_a_message_has_a_row_for_each_request() -> None:
    drafts = DraftTable()
    drafts.fill(step(reading={"a": 9, "b": 9}))
    with pytest.raises(ValueError, match="shorter"):
        drafts.store(["a", "b"], [[1]])


class Wires:
    """The two ends of a link that waits for nothing."""

    def __init__(self) -> None:
        self.down: queue.Queue[Tensor] = queue.Queue()
        self.up: queue.Queue[Tensor] = queue.Queue()
        self.verifier = MemoryLink(self.down, [self.up], 0, 0)
        self.drafter = MemoryLink(self.down, [self.up], None, 0)


def test_a_verifier_that_does_not_send_records_all_the_same(tmp_path: Path) -> None:
    wires = Wires()
    clock = StageClock(tmp_path / "ring")
    lane = VerifierLane(wires.verifier, clock, sends=False)
    call = step({"r0": 1})
    lane.begin(call)
    lane.sampled(call, table([[5, REJECTED]]))
    clock.commit()
    assert wires.down.empty()
    (record,) = StageReader(tmp_path / "ring").read()
    assert record["drafted"] == 1


def test_a_verifier_records_what_it_waited_for_and_what_was_accepted(tmp_path: Path) -> None:
    clock = StageClock(tmp_path / "ring")
    lane = VerifierLane(Wires().verifier, clock, sends=True)
    lane.begin(step())  # of no interest, but it has a number
    call = step({"r0": 3, "r1": 3, "r2": 0, "r3": 1}, reading={"r4": 40, "r5": 1})
    lane.begin(call)
    x = REJECTED
    lane.sampled(call, table([[1, 2, x, x], [1, x, x, x], [1, x, x, x], [1, 2, x, x], [1, x, x, x], [1, x, x, x]]))
    clock.commit()

    (record,) = StageReader(tmp_path / "ring").read()
    assert record["call"] == 2
    assert (record["requests"], record["tokens"], record["prefill"]) == (6, 4 + 4 + 1 + 2 + 40 + 1, 1)
    assert record["drafted"] == 7
    assert record["drafted_at"][:4].tolist() == [3, 2, 2, 0]
    assert record["accepted"][:4].tolist() == [2, 0, 0, 0]
    for stage in (Stage.RECV, Stage.SEND):
        assert 0 < record["begin"][stage] <= record["end"][stage]
    assert record["end"][Stage.RECV] <= record["begin"][Stage.PREPARE] <= record["begin"][Stage.SEND]


def test_an_empty_call_leaves_no_record(tmp_path: Path) -> None:
    wires, clock = Wires(), StageClock(tmp_path / "ring")
    for lane in (VerifierLane(wires.verifier, clock, sends=True), DrafterLane(wires.drafter, clock)):
        clock.begin(0)
        lane.begin(step())
        clock.commit()
    assert StageReader(tmp_path / "ring").read()["call"].tolist() == [0, 0], "no call of a lane's own was begun"


def test_the_drafter_takes_what_vllms_sampler_would_give() -> None:
    """As many columns as the call's longest drafts need, though messages are always as wide as drafts can be."""
    wires = Wires()
    lane = DrafterLane(wires.drafter, StageClock(None))
    for call, columns in ((step({"r0": 1, "r1": 2}), 3), (step(reading={"r0": 9, "r1": 9}), 1)):
        lane.begin(call)
        wires.down.put(table([[1, REJECTED, REJECTED, REJECTED]] * 2))
        assert lane.sampled(call).shape == (2, columns)


def test_the_drafter_knows_its_drafts_before_they_have_arrived() -> None:
    wires = Wires()
    lane = DrafterLane(wires.drafter, StageClock(None))
    call = step(reading={"r0": 9})
    lane.begin(call)
    lane.drafted(call, table([[4, 5, 6]]))
    call = step({"r0": DRAFTS})
    lane.begin(call)
    assert call.scheduled_spec_decode_tokens == {"r0": [4, 5, 6]}
    assert wires.up.get_nowait().tolist() == [[4, 5, 6]]


def test_drafts_that_do_not_come_end_the_call() -> None:
    lane = VerifierLane(Wires().verifier, StageClock(None), sends=True)
    for call in (step({"r0": 1}), step({"r1": 1})):
        lane.begin(call)
        lane.sampled(call, table([[1, REJECTED]]))
    with pytest.raises(LinkError):
        lane.begin(step({"r0": 1}))
