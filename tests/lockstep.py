"""The real lanes of all ranks, each call to its end before the next, and what they should make of it."""

from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass

from interleavings import Done, Issued, Meet, Operation, Receive, Relay, Send
from steps import DRAFTS, admitted, draft_ids, drawn, proposals_of, sampled_ids, table
from torch import Tensor

from worker.minedraft.lanes import CallNumbers, DrafterLane, Step, VerifierLane
from worker.minedraft.link import LinkError
from worker.minedraft.relay import NO_DRAFT, FirstVerifier, OtherVerifier
from worker.minedraft.stages import StageClock

#: For each call, the drafts that its placeholders stand for.
Filled = list[dict[str, list[int]]]
#: Messages under way, with the calls that they were sent in.
Wire = deque[tuple[int, Tensor]]


class Dead(Exception):  # noqa: N818 - a state
    """The drafter is."""


class Tape:
    """What one rank does, written down."""

    def __init__(self) -> None:
        self.program: list[Operation] = []
        self.call = 0
        self.received: list[int] = []
        """The calls whose drafts this rank has got."""

    def issue(self, call: int, after: int) -> None:
        self.call = call
        self.program.append(Issued(call, after))

    def take(self, wire: Wire, peer: int, requests: int) -> Tensor:
        call, message = wire.popleft()
        assert message.shape[0] == requests
        self.program.append(Receive(peer, call))
        return message


@dataclass
class Fate:
    """How long a drafter lives, and who notices.

    Attributes:
        operations: of its end of the link, which it still does; None: it lives.
        noticed: whether sends to a drafter that is gone fail, and receives that are made ready; a receive always does.
    """

    operations: int | None = None
    noticed: bool = True


class Pair:
    """A link between verifier 0 and a drafter, which hands messages on at once: both ends.

    Args:
        first: verifier 0's tape.
        drafter: the drafter's.
        rank: the drafter's.
        fate: the drafter's.
    """

    def __init__(self, first: Tape, drafter: Tape, rank: int, fate: Fate) -> None:
        self.sent: list[int] = []
        """The calls whose drafts the drafter has sent."""
        self.dead = self.closed = False
        self._first, self._drafter, self._rank, self._fate = first, drafter, rank, fate
        self._left = fate.operations
        self._down, self._up = Wire(), Wire()
        self._expected: tuple[deque[int], deque[int]] = (deque(), deque())

    def send_sampled(self, sampled: Tensor) -> None:
        self._notice()
        self._first.program.append(Send(self._first.call, self._rank))
        self._down.append((self._first.call, sampled))

    def expect_drafts(self, requests: int) -> None:
        self._notice()
        self._expected[0].append(requests)

    def recv_drafts(self, requests: int) -> Tensor:
        assert not self.closed
        assert self._expected[0].popleft() == requests
        if not self._up:
            assert self.dead, "this would wait for ever"
            raise LinkError("it is gone")
        self._first.received.append(self._up[0][0])
        return self._first.take(self._up, self._rank, requests)

    def expect_proposals(self, requests: int, vocabulary: int) -> None:
        assert vocabulary == 1
        self._notice()
        self._expected[0].append(requests)

    def recv_proposals(self, requests: int, vocabulary: int) -> Tensor:
        assert vocabulary == 1
        assert self._expected[0].popleft() == requests
        if not self._up:
            assert self.dead, "this would wait for ever"
            raise LinkError("it is gone")
        return self._first.take(self._up, self._rank, requests)

    def expect_sampled(self, requests: int) -> None:
        self._live()
        self._expected[1].append(requests)

    def recv_sampled(self, requests: int) -> Tensor:
        self._live()
        assert self._expected[1].popleft() == requests
        return self._drafter.take(self._down, 0, requests)

    def send_drafts(self, drafts: Tensor) -> None:
        self._live()
        self.sent.append(self._drafter.call)
        self._drafter.program.append(Send(self._drafter.call, 0))
        self._up.append((self._drafter.call, drafts))

    def send_proposals(self, proposals: Tensor) -> None:
        self._live()
        self._drafter.program.append(Send(self._drafter.call, 0))
        self._up.append((self._drafter.call, proposals))

    def close(self) -> None:
        self.closed = True

    def _live(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self.dead = True
                raise Dead

    def _notice(self) -> None:
        assert not self.closed
        if self.dead and self._fate.noticed:
            raise LinkError("it is gone")


class TapedRelay:
    """The relay's end at the first verifier.

    Args:
        tape: the first verifier's.
        wires: to each of the others.
    """

    def __init__(self, tape: Tape, wires: Sequence[Wire]) -> None:
        self._tape, self._wires = tape, wires

    def give(self, drafts: Tensor) -> None:
        self._tape.program.append(Relay(self._tape.call, tuple(range(1, 1 + len(self._wires)))))
        for wire in self._wires:
            wire.append((self._tape.call, drafts))


@dataclass
class TapedRelayEnd:
    """Its end at another verifier."""

    tape: Tape
    wire: Wire

    def take(self, requests: int) -> Tensor:
        return self.tape.take(self.wire, 0, requests)

    def take_proposals(self, requests: int, vocabulary: int) -> Tensor:
        assert vocabulary == 1
        return self.take(requests)


@dataclass
class Run:
    """What came of some calls; ranks in order, the drafter last."""

    programs: list[list[Operation]]
    """Of each rank; of the drafter that came last."""
    filled: list[Filled]
    """Of each rank; of all drafters together, for the calls that they took part in."""
    proposed: list[list[dict[str, float]]]
    """Of each verifier, for each call, what `proposals_of` has for the drafts that are verified with one."""
    drafter_calls: list[int]
    """Those calls."""
    known: list[int]
    """Requests that each rank still knows in the end."""
    sent: list[list[int]]
    """Of each drafter, the calls whose drafts it has sent."""
    received: list[int]
    """The calls whose drafts verifier 0 has got."""
    losses: int
    """How often verifier 0 has told that there is no drafter any more."""


def in_lockstep(
    calls: Sequence[Step], verifiers: int, fates: Sequence[Fate] = (Fate(),), joins: Collection[int] = ()
) -> Run:
    """Run the lanes, each call to its end before the next.

    Args:
        calls: numbered from 1.
        verifiers: how many.
        fates: of each drafter.
        joins: calls before which another one joins, one for each fate but the first.
    """
    ranks = _Ranks(verifiers, fates[0])
    following = iter(fates[1:])
    numbers = CallNumbers()  # the executor's
    before: Step | None = None
    for call, step in enumerate(calls, 1):
        number = numbers.next(step)
        if call in joins:
            ranks.join(next(following), number - 1)
        ranks.run(call, step, call - 1 if _waits(step, before) else max(call - 2, 0))
        before = step
    return ranks.result()


class _Ranks:
    def __init__(self, verifiers: int, fate: Fate) -> None:
        self._losses = 0
        self._tapes = [Tape() for _ in range(verifiers)]
        self._wires = [Wire() for _ in range(verifiers - 1)]
        self._pairs: list[Pair] = []
        self._drafter = self._another(fate, 0)
        ends = [self._end(rank) for rank in range(verifiers)]
        self._lanes = [
            VerifierLane(end, StageClock(None), sends=rank == 0, vocabulary=1) for rank, end in enumerate(ends)
        ]
        self._filled: list[Filled] = [[] for _ in range(verifiers + 1)]
        self._proposed: list[list[dict[str, float]]] = [[] for _ in range(verifiers)]
        self._running: set[str] = set()
        self._strange: set[str] = set()
        """Requests that the newest drafter has not known from their first call on."""
        self._drafter_calls: list[int] = []

    def join(self, fate: Fate, last: int) -> None:
        """Let another drafter take part after a call."""
        self._drafter = self._another(fate, last)
        self._strange = set(self._running)
        for rank, lane in enumerate(self._lanes):
            lane.rejoin(self._end(rank))

    def run(self, call: int, step: Step, after: int) -> None:
        """Run a call, which the engine makes when another one has ended."""
        self._running -= step.finished_req_ids
        self._strange -= step.finished_req_ids
        self._running |= step.num_scheduled_tokens.keys()
        for rank, (tape, lane) in enumerate(zip(self._tapes, self._lanes, strict=True)):
            tape.issue(call, after)
            copy = deepcopy(step)
            lane.begin(copy)
            self._filled[rank].append(copy.scheduled_spec_decode_tokens)
            self._proposed[rank].append({name: float(rows[0, 0]) for name, rows in lane.proposals.items()})
            if step.num_scheduled_tokens:
                tape.program.append(Meet(call))
                lane.sampled(copy, sampled(call, copy), drawn(step))
        if not self._pairs[-1].dead:
            with suppress(Dead):
                self._draft(call, step, after)
        self._tapes[0].program.append(Done(call))

    def result(self) -> Run:
        """What came of it."""
        return Run(
            [tape.program for tape in (*self._tapes, self._drafter_tape)],
            self._filled,
            self._proposed,
            self._drafter_calls,
            [len(lane._table) for lane in (*self._lanes, self._drafter)],
            [pair.sent for pair in self._pairs],
            self._tapes[0].received,
            self._losses,
        )

    def _draft(self, call: int, step: Step, after: int) -> None:
        self._drafter_tape.issue(call, after)
        copy = deepcopy(step)
        self._drafter.begin(copy)
        assert self._drafter.call == self._lanes[0].call
        self._drafter_calls.append(call)
        self._filled[-1].append(copy.scheduled_spec_decode_tokens)
        if step.num_scheduled_tokens:
            assert self._drafter.sampled(copy).equal(sampled(call, copy))
            if not step.num_spec_tokens_to_schedule:
                return
            known = [name for name in drawn(step) if name not in self._strange]
            self._drafter.drafted(copy, drafted(call, step), proposals_of(call, known) if known else None)

    def _another(self, fate: Fate, last: int) -> DrafterLane:
        self._drafter_tape = Tape()
        self._pairs.append(Pair(self._tapes[0], self._drafter_tape, len(self._tapes), fate))
        return DrafterLane(self._pairs[-1], StageClock(None), last)

    def _end(self, rank: int) -> FirstVerifier | OtherVerifier:
        if rank:
            return OtherVerifier(TapedRelayEnd(self._tapes[rank], self._wires[rank - 1]))
        relay = TapedRelay(self._tapes[0], self._wires) if self._wires else None
        return FirstVerifier(self._pairs[-1], relay, DRAFTS, self._lose)

    def _lose(self, _: LinkError) -> None:
        self._losses += 1


def _waits(step: Step, before: Step | None) -> bool:
    """Whether the engine makes the call when the one before has ended: it verifies a request of that one again."""
    drafts = step.scheduled_spec_decode_tokens
    return before is not None and any(
        name in before.num_scheduled_tokens and tokens == 1 + len(drafts.get(name, ()))
        for name, tokens in step.num_scheduled_tokens.items()
    )


def sampled(call: int, step: Step) -> Tensor:
    """[requests, 1 + most drafts], as vLLM's sampler has it."""
    width = 1 + max(map(len, step.scheduled_spec_decode_tokens.values()), default=0)
    return table([sampled_ids(call, name)[:width] for name in step.num_scheduled_tokens])


def drafted(call: int, step: Step) -> Tensor:
    """[requests, DRAFTS], a message up."""
    rows = ((draft_ids(call, name), admitted(call, name)) for name in step.num_scheduled_tokens)
    return table([[*ids[:count], *[NO_DRAFT] * (DRAFTS - count)] for ids, count in rows])


def due(calls: Sequence[Step], came: Collection[int] | None = None, joins: Collection[int] = ()) -> Filled:
    """What placeholders stand for: the drafts of the request's last call, if it drafted, and as many as were sent.

    Requests without any are left out, but for calls with a grammar: there zeros stand for what is missing.

    Args:
        calls: numbered from 1.
        came: the calls whose drafts have come; None: all.
        joins: calls before which another drafter has joined, which knows nothing of those before.
    """
    last: dict[str, int] = {}
    filled = []
    for call, step in enumerate(calls, 1):
        if call in joins:
            last.clear()
        for name in step.finished_req_ids:
            last.pop(name, None)
        known = {name: number for name, number in last.items() if came is None or number in came}
        found = {}
        for name, placeholders in step.scheduled_spec_decode_tokens.items():
            sent = draft_ids(known[name], name)[: admitted(known[name], name)] if name in known else []
            if step.has_structured_output_requests:
                sent += [0] * DRAFTS
            found[name] = sent[: len(placeholders)]
        filled.append({name: drafts for name, drafts in found.items() if drafts})
        for name in step.num_scheduled_tokens:
            last.pop(name, None)
        if step.num_spec_tokens_to_schedule:
            last |= dict.fromkeys(step.num_scheduled_tokens, call)
    return filled


def due_proposals(calls: Sequence[Step], joins: Collection[int] = ()) -> list[dict[str, float]]:
    """For each call, what `proposals_of` has for the drafts that are verified with one, where no drafter is lost.

    Those of requests that the drafter knows from their beginning, where it sent drafts.

    Args:
        calls: numbered from 1.
        joins: calls before which another drafter has joined.
    """
    fresh: dict[str, float] = {}
    running: set[str] = set()
    strange: set[str] = set()
    proposed = []
    for call, step in enumerate(calls, 1):
        if call in joins:
            fresh, strange = {}, set(running)
        running = (running - step.finished_req_ids) | step.num_scheduled_tokens.keys()
        strange -= step.finished_req_ids
        for name in step.finished_req_ids:
            fresh.pop(name, None)
        proposed.append({name: fresh.pop(name) for name in step.scheduled_spec_decode_tokens if name in fresh})
        for name in step.num_scheduled_tokens:
            fresh.pop(name, None)
        if step.num_spec_tokens_to_schedule:
            known = [name for name in drawn(step) if name not in strange and admitted(call, name)]
            fresh |= {name: float(rows[0, 0]) for name, rows in zip(known, proposals_of(call, known), strict=True)}
    return proposed
