"""Where vLLM's V2 runner asks its pipeline handler: drafts reach their requests, in whichever slots those are.

A runner's bookkeeping of slots is imagined as vLLM's is: freed ones go back on a stack, from which new requests take.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from steps import DRAFTS, Step, step
from torch import Tensor

from worker.minedraft.pipeline import DrafterPipeline, VerifierPipeline
from worker.minedraft.stages import StageClock

SLOTS = 6


@dataclass
class Batch:
    """What is read of vLLM's `InputBatch`."""

    idx_mapping_np: Any
    num_draft_tokens_per_req: Any = None

    @property
    def idx_mapping(self) -> Tensor:
        return torch.from_numpy(self.idx_mapping_np)


class Wire:
    """Both ends of a link in one; what was sent and not received is in its queues."""

    def __init__(self) -> None:
        self.down: deque[Tensor] = deque()
        self.up: deque[Tensor] = deque()
        self.did: list[str] = []

    def send_sampled(self, sampled: Tensor) -> None:
        self.did.append("send sampled")
        self.down.append(sampled)

    def expect_drafts(self, requests: int) -> None:
        self.did.append(f"expect {requests}")

    def recv_drafts(self, requests: int) -> Tensor:
        self.did.append(f"receive {requests}")
        assert len(self.up[0]) == requests
        return self.up.popleft()

    def expect_sampled(self, requests: int) -> None:
        pass

    def recv_sampled(self, requests: int) -> Tensor:
        assert len(self.down[0]) == requests
        return self.down.popleft()

    def send_drafts(self, drafts: Tensor) -> None:
        self.up.append(drafts)

    def send_nothing(self) -> None:
        self.did.append("nothing")

    def wait_sent(self, outstanding: int) -> None:
        self.did.append(f"wait {outstanding}")

    def close(self) -> None:
        self.did.append("close")


@dataclass
class Runner:
    """The slots of a rank's runner, its table of drafts, and its handler."""

    pipeline: Any
    slots: dict[str, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=lambda: list(range(SLOTS)))
    table: Tensor = field(default_factory=lambda: torch.zeros((SLOTS, DRAFTS), dtype=torch.int64))

    def begin(self, call: Step) -> Batch:
        self.pipeline.begin(call, self.slots)
        self.pipeline.get_prev_sampled_outputs(self.table)
        for request in sorted(call.finished_req_ids):
            if request in self.slots:
                slot = self.slots.pop(request)
                self.free.append(slot)
                self.pipeline.on_req_idx_freed(slot)
        for request in call.num_scheduled_tokens:
            if request not in self.slots:
                self.slots[request] = self.free.pop()
                self.table[self.slots[request]] = 0
        return Batch(np.array([self.slots[request] for request in call.num_scheduled_tokens], np.int64))


def drafts_of(request: str, call: int) -> list[int]:
    """What the drafter drafts for a request in a call."""
    return [1000 * call + 10 * int(request[1:]) + place for place in range(DRAFTS)]


class BothRanks:
    """A verifier and a drafter in lockstep."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.verifier = Runner(VerifierPipeline(self.wire, StageClock(None), DRAFTS, SLOTS))
        self.drafter = Runner(DrafterPipeline(self.wire, StageClock(None), DRAFTS))
        self.calls = 0
        self.last: dict[str, int] = {}  # the call that a request was in last

    def call(self, made: Step) -> dict[str, list[int]]:
        """Run a call on both; what the verifier had in its table for each of the call's requests."""
        batch = self.verifier.begin(made)
        self.calls = self.verifier.pipeline.call
        found = {name: self.verifier.table[self.verifier.slots[name]].tolist() for name in made.num_scheduled_tokens}
        if made.num_scheduled_tokens:
            rows = len(batch.idx_mapping_np)
            ids = torch.arange(rows * (DRAFTS + 1)).view(rows, -1) + self.calls
            counts = torch.ones(rows, dtype=torch.int32)
            self.verifier.pipeline.broadcast(ids, counts, counts * 2, batch)
            self.verifier.table[batch.idx_mapping] = 0  # what vLLM writes there: the verifier's speculator drafts zeros
        theirs = self.drafter.begin(made)
        if made.num_scheduled_tokens:
            got, valid, rejected = self.drafter.pipeline.sampled(rows, torch.device("cpu"))
            assert (got.tolist(), valid.tolist(), rejected.tolist()) == (ids.tolist(), [1] * rows, [2] * rows)
            for name in made.num_scheduled_tokens if made.num_spec_tokens_to_schedule else ():
                self.drafter.table[self.drafter.slots[name]] = torch.tensor(drafts_of(name, self.calls))
            self.drafter.pipeline.broadcast_drafts(self.drafter.table, theirs)
        return found


@pytest.mark.parametrize("seed", range(40))
def test_every_request_has_its_own_newest_drafts(seed: int) -> None:
    """Requests come, end while their drafts are under way, leave their slots to others, and wait a turn."""
    chance = random.Random(seed)
    both, live, ended, numbers = BothRanks(), {}, [], iter(range(10_000))
    for _ in range(120):
        for request in [request for request in live if chance.random() < 0.1]:
            del live[request]
            ended.append(request)
        while len(live) < SLOTS - len(ended) and chance.random() < 0.4:
            live[f"r{next(numbers)}"] = 0
        turn = both.calls + 1
        made = step({name: DRAFTS for name, last in live.items() if last <= turn - 2 and chance.random() < 0.9})
        made.finished_req_ids, ended = set(ended), []
        found = both.call(made)
        for name, drafts in found.items():
            assert drafts == (drafts_of(name, live[name]) if live[name] else [0] * DRAFTS)
            live[name] = both.calls
    both.call(Step(finished_req_ids=set(live)))
    assert not both.wire.up, "an empty call takes all that is left"
    assert not both.wire.down


def test_drafts_of_a_request_that_ended_are_received_and_dropped() -> None:
    both = BothRanks()
    both.call(step({"r1": DRAFTS}))
    both.call(step({"r2": DRAFTS}, finished="r1"))  # its slot is r2's; r1's drafts are still under way
    assert both.verifier.slots["r2"] == 5
    both.call(step({"r3": DRAFTS}))  # where they are received
    assert both.verifier.table[5].tolist() == [0] * DRAFTS
    assert both.call(step({"r2": DRAFTS})) == {"r2": drafts_of("r2", 2)}


def test_a_receive_comes_after_the_send_that_it_answers() -> None:
    both = BothRanks()
    for name in ("r1", "r2", "r1", "r2"):
        both.call(step({name: DRAFTS}))
    sent = [act for act in both.wire.did if not act.startswith("wait")]
    assert sent == [
        *("send sampled", "expect 1"),
        *("send sampled", "expect 1"),
        *("receive 1", "send sampled", "expect 1"),
        *("receive 1", "send sampled", "expect 1"),
    ]


def test_the_drafter_does_not_run_two_calls_ahead_of_its_own_sends() -> None:
    """vLLM has two sets of the buffers that it uploads from; an empty call takes one, too."""
    both = BothRanks()
    for made in (step({"r1": DRAFTS}), step({"r2": DRAFTS}), step({"r1": DRAFTS}), Step(), step({"r1": DRAFTS})):
        both.call(made)
    assert [act for act in both.wire.did if act.startswith("wait")] == [f"wait {sends}" for sends in (0, 1, 1, 1, 0)]


def test_with_another_drafter_nothing_of_the_old_ones_is_awaited() -> None:
    both = BothRanks()
    both.call(step({"r1": DRAFTS}))
    old, new = both.wire, Wire()
    both.verifier.pipeline.rejoin(new)
    assert old.did[-1] == "close"
    both.verifier.begin(Step())
    assert new.did == []


@pytest.mark.parametrize("seed", range(20))
def test_where_nothing_is_asked_nothing_is_sent_up_and_the_newest_drafts_stay(seed: int) -> None:
    chance = random.Random(seed)
    both, newest = BothRanks(), dict.fromkeys(("r1", "r2"), [0] * DRAFTS)
    for number in range(60):
        name, asked = ("r1", "r2")[number % 2], chance.choice([0, DRAFTS])
        found = both.call(step({name: DRAFTS}, asked=asked))
        assert found == {name: newest[name]}
        # The verifier's own speculator has drafted zeros since.
        newest[name] = drafts_of(name, both.calls) if asked else [0] * DRAFTS
        assert len(both.wire.up) <= 2
    both.call(Step(finished_req_ids={"r1", "r2"}))
    assert not both.wire.up


def test_found_drafts_are_in_the_tables_of_all_ranks_after_what_was_received() -> None:
    both = BothRanks()
    for name in ("r1", "r2"):
        both.call(step({name: 0}))
    made = step({"r1": 2})
    made.scheduled_spec_decode_tokens["r1"] = [8, 9]
    assert both.call(made) == {"r1": [8, 9, 0]}
    assert not both.wire.up or len(both.wire.up) == 2
    # Those of the call in which they were verified are newer.
    both.call(step({"r2": DRAFTS}))
    assert both.call(step({"r1": DRAFTS})) == {"r1": drafts_of("r1", 3)}


def test_a_drafters_table_has_what_was_found_before_its_pass() -> None:
    pipeline = DrafterPipeline(Wire(), StageClock(None), DRAFTS)
    made, table = step({"r1": 1, "r2": DRAFTS}), torch.full((SLOTS, DRAFTS), 5)
    made.scheduled_spec_decode_tokens["r1"] = [8]
    pipeline.begin(made, {"r1": 2, "r2": 3})
    pipeline.get_prev_sampled_outputs(table)
    assert table[2].tolist() == [8, 0, 0]
    assert table[3].tolist() == [5] * DRAFTS
    pipeline.begin(step({"r1": 1}), {"r1": 2})
    table[2] = 6
    pipeline.get_prev_sampled_outputs(table)
    assert table[2].tolist() == [6] * DRAFTS, "once"


def test_a_call_without_drafts_takes_its_buffers_until_its_device_is_there() -> None:
    both = BothRanks()
    for name in ("r1", "r2", "r1", "r2"):
        both.call(step({name: DRAFTS}, asked=0))
    drafter = [act for act in both.wire.did if act.startswith(("wait", "nothing"))]
    assert drafter == ["wait 0", "nothing", "wait 1", "nothing", "wait 1", "nothing", "wait 1", "nothing"]
