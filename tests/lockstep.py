"""The real lanes of all ranks, each call to its end before the next, and what they should make of it."""

from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

from interleavings import Done, Issued, Meet, Operation, Receive, Send
from steps import DRAFTS, draft_ids, sampled_ids, table
from torch import Tensor

from worker.minedraft.lanes import DrafterLane, Step, VerifierLane
from worker.minedraft.stages import StageClock

#: For each call, the drafts that its placeholders stand for.
Filled = list[dict[str, list[int]]]
#: Messages under way, with the calls that they were sent in.
Wire = deque[tuple[int, Tensor]]


class Tape:
    """One rank's end of a link: hands messages on at once, and writes down what the rank does."""

    def __init__(self, outboxes: dict[int, Wire], inbox: Wire, peer: int) -> None:
        self.program: list[Operation] = []
        self._outboxes, self._inbox, self._peer = outboxes, inbox, peer
        self._call = 0
        self._expected: deque[int] = deque()

    def issue(self, call: int) -> None:
        self._call = call
        self.program.append(Issued(call))

    def send_sampled(self, sampled: Tensor) -> None:
        self.program.append(Send(self._call, tuple(self._outboxes)))
        for outbox in self._outboxes.values():
            outbox.append((self._call, sampled))

    def expect_sampled(self, requests: int) -> None:
        self._expected.append(requests)

    def recv_sampled(self, requests: int) -> Tensor:
        assert self._expected.popleft() == requests
        call, message = self._inbox.popleft()
        assert message.shape[0] == requests
        self.program.append(Receive(self._peer, call))
        return message

    send_drafts, expect_drafts, recv_drafts = send_sampled, expect_sampled, recv_sampled

    def close(self) -> None:
        raise AssertionError("a lane does not own its link")


@dataclass
class Run:
    """What came of some calls, for each rank, the drafter last."""

    programs: list[list[Operation]]
    filled: list[Filled]
    known: list[int]
    """Requests that the rank still knows in the end."""


def in_lockstep(calls: Sequence[Step], verifiers: int) -> Run:
    """Run the lanes, each call to its end before the next."""
    down, up = Wire(), [Wire() for _ in range(verifiers)]
    tapes = [Tape({verifiers: down} if rank == 0 else {}, up[rank], verifiers) for rank in range(verifiers)]
    tapes.append(Tape(dict(enumerate(up)), down, 0))
    lanes = [VerifierLane(tape, StageClock(None), sends=rank == 0) for rank, tape in enumerate(tapes[:-1])]
    drafter = DrafterLane(tapes[-1], StageClock(None))
    filled: list[Filled] = [[] for _ in tapes]
    for number, call in enumerate(calls, 1):
        copies = [deepcopy(call) for _ in tapes]
        for rank, tape in enumerate(tapes):
            tape.issue(number)
            (*lanes, drafter)[rank].begin(copies[rank])
            filled[rank].append(copies[rank].scheduled_spec_decode_tokens)
            if call.num_scheduled_tokens and rank < verifiers:
                tape.program.append(Meet(number))
                lanes[rank].sampled(copies[rank], sampled(number, call))
            elif call.num_scheduled_tokens:
                assert drafter.sampled(copies[rank]).equal(sampled(number, call))
                drafter.drafted(copies[rank], drafted(number, call))
        tapes[0].program.append(Done(number))
    return Run([tape.program for tape in tapes], filled, [len(lane._table) for lane in (*lanes, drafter)])


def sampled(number: int, call: Step) -> Tensor:
    """[requests, 1 + most drafts], as vLLM's sampler has it."""
    width = 1 + max(map(len, call.scheduled_spec_decode_tokens.values()), default=0)
    return table([sampled_ids(number, name)[:width] for name in call.num_scheduled_tokens])


def drafted(number: int, call: Step) -> Tensor:
    return table([draft_ids(number, name) for name in call.num_scheduled_tokens])


def due(calls: Sequence[Step]) -> Filled:
    """What placeholders stand for: the drafts of the request's last call, or zeros when there was none."""
    last: dict[str, int] = {}
    filled = []
    for number, call in enumerate(calls, 1):
        for name in call.finished_req_ids:
            last.pop(name, None)
        filled.append(
            {
                name: (draft_ids(last[name], name) if name in last else [0] * DRAFTS)[: len(placeholders)]
                for name, placeholders in call.scheduled_spec_decode_tokens.items()
            }
        )
        last |= dict.fromkeys(call.num_scheduled_tokens, number)
    return filled
