"""What one rank does with drafts in each step: the protocol of the two batches, without vLLM and without devices.

The engine gives every rank the same calls in the same order, at most two before the first has ended. Call n:

    verifier   consume drafts (all of calls <= n-2) -> forward -> sample -> send sampled(n)
    drafter    receive sampled(n) -> draft -> send drafts(n)

In a call in which nothing is asked to be drafted no drafts(n) exist. Where the drafter works ahead (`Way.AHEAD`) it
drafts before it receives sampled(n); what is sent, and in which order, is the same.

Every call is numbered; one without requests exchanges nothing, but the verifiers then consume all of calls <= n-1.
While there is one batch alone the engine makes no empty calls between its turns, and numbers go on as if it did
(`CallNumbers`).

- *No message stays unread.* Calls alternate between the batches, so the drafts that call n needs are those of a call
  <= n-2. The engine makes an empty call after the last request has ended, and that one takes what is left.
- *No deadlock.* A receive waits only for what the same, or an earlier, call has already made the peer do: sampled(n)
  needs drafts <= n-2 and drafts(n) needs sampled(n), so no chain of waits comes back to itself. A send waits for the
  peer to take a message of an earlier call (`link.MAX_OUTSTANDING`), which needs nothing more of this rank.
- *No wait without end.* A drafter that is asked for nothing sends nothing, so nobody receives from it. It may be behind
  by the calls that its queue holds, five; then the engine process waits for it, as long as a message may take
  (`drafter_process.py`).

`tests/unit/worker/minedraft/test_protocol.py` runs through every interleaving.
"""

from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from worker.minedraft.draft_table import DraftTable
from worker.minedraft.event_clock import Clock
from worker.minedraft.link import REJECTED, DrafterEnd, VerifierEnd
from worker.minedraft.stages import Stage, StageClock
from worker.strategies.seam import Way


class Step(Protocol):
    """What a lane reads of vLLM's `SchedulerOutput` (`v1/core/sched/output.py`).

    Attributes:
        num_scheduled_tokens: tokens of each request; its order is the order of rows in messages.
        scheduled_spec_decode_tokens: drafted tokens of each request that has some, among those; placeholders.
        finished_req_ids: requests that will not come back.
        total_num_scheduled_tokens: the sum; 0 in an empty call.
        num_spec_tokens_to_schedule: tokens to draft for each request in this call; with 0 no drafts are exchanged.
        has_structured_output_requests: whether a request in the call has a grammar.
    """

    num_scheduled_tokens: dict[str, int]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    finished_req_ids: set[str]
    total_num_scheduled_tokens: int
    num_spec_tokens_to_schedule: int
    has_structured_output_requests: bool


def way_of(step: Step) -> Way:
    """How rows take turns in a call: what the engine process chose (an attribute beside vLLM's own), or two batches."""
    return Way(getattr(step, "way", Way.TWO))


class CallNumbers:
    """Numbers calls so that those of one batch are an even distance apart; every process counts alike.

    Two calls that follow each other belong to the two batches. Where the second one verifies requests of the first, its
    batch is alone, and the other one's turn between them was left out: it has a number, too.

    Args:
        last: the number of the call before the first.
    """

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self._requests: Set[str] = frozenset()

    def next(self, step: Step) -> int:
        """The number of the next call."""
        tokens, drafts = step.num_scheduled_tokens, step.scheduled_spec_decode_tokens
        again = tokens.keys() & self._requests
        # A prompt is read in both batches' calls, so requests that read say nothing.
        alone = any(tokens[request] == 1 + len(drafts.get(request, ())) for request in again)
        self._requests = tokens.keys()
        self.last += 2 if alone else 1
        return self.last


def count(step: Step, clock: Clock) -> None:
    """Record how much a step holds."""
    drafts = step.scheduled_spec_decode_tokens
    reading = sum(tokens > 1 + len(drafts.get(request, ())) for request, tokens in step.num_scheduled_tokens.items())
    clock.count(
        requests=len(step.num_scheduled_tokens),
        tokens=step.total_num_scheduled_tokens,
        prefill=reading,
        asked=step.num_spec_tokens_to_schedule,
        way=way_of(step),
    )


def count_drafts(step: Step, sampled: Tensor, clock: Clock, missing: Mapping[str, int] | None = None) -> None:
    """Record how many drafts were verified, and accepted.

    Args:
        step: the call's step.
        sampled: [requests, up to drafts + 1] ids in the order of messages, REJECTED after the last valid one.
        clock: where to.
        missing: how many zeros stand for missing drafts of each request, at its end: they are no drafts.
    """
    drafts, requests, missing = step.scheduled_spec_decode_tokens, step.num_scheduled_tokens, missing or {}
    drafted = np.fromiter((len(drafts.get(name, ())) - missing.get(name, 0) for name in requests), np.int64)
    lengths = np.count_nonzero(sampled.numpy() != REJECTED, axis=1)
    clock.drafts(drafted, np.where(drafted > 0, np.minimum(lengths - 1, drafted), 0))


class Unread(NamedTuple):
    """A call whose drafts have not been received.

    Attributes:
        call: its number.
        requests: in the order of messages.
        proposed: those whose drafts come with proposals, in that order.
    """

    call: int
    requests: list[str]
    proposed: Sequence[str]


class VerifierLane:
    """A verifier's side.

    Args:
        link: its end of the link, or what it has in place of one (`relay.py`).
        clock: where its stages are recorded.
        sends: whether this rank is the one that sends what was sampled (all ranks sample the same).
        vocabulary: ids that a proposal knows.
    """

    def __init__(self, link: VerifierEnd, clock: StageClock, *, sends: bool, vocabulary: int = 0) -> None:
        self._link, self._clock, self._sends, self._vocabulary = link, clock, sends, vocabulary
        self._table = DraftTable()
        self._numbers = CallNumbers()
        self._unread: deque[Unread] = deque()
        self._unknown: set[str] = set()  # to this drafter, which drafts greedily for them

    @property
    def call(self) -> int:
        """The number of the call that has begun last."""
        return self._numbers.last

    @property
    def proposals(self) -> Mapping[str, Tensor]:
        """[drafts, vocabulary] of the requests in the call that has begun last whose drafts were drawn."""
        return self._table.proposals

    @property
    def verified(self) -> dict[str, int] | None:
        """Drafts of each request in that call, where one has fewer than were scheduled; else None."""
        return self._table.verified

    def rejoin(self, link: VerifierEnd) -> None:
        """Go on with another drafter, which knows nothing of calls before.

        Args:
            link: the new end.
        """
        self._link.close()
        self._link = link
        self._unread.clear()
        self._table.forget_drafts()
        self._unknown = set(self._table.requests)

    def begin(self, step: Step) -> None:
        """Begin a call: receive the drafts that are due and put them into the step.

        Raises:
            LinkError: drafts did not come in time.
        """
        call = self._numbers.next(step)
        requests = list(step.num_scheduled_tokens)
        if requests:
            self._clock.begin(call)
            self._clock.start(Stage.RECV)
        self._receive(call - 2 if requests else call - 1)
        self._table.fill(step, call)
        self._unknown -= step.finished_req_ids
        if requests:
            count(step, self._clock)
            self._clock.stop(Stage.RECV)
            self._clock.start(Stage.PREPARE)

    def sampled(self, step: Step, sampled: Tensor, drawn: Sequence[str] = ()) -> None:
        """Pass on what was sampled.

        Args:
            step: the call's step.
            sampled: [requests, up to drafts + 1] ids in the order of messages, REJECTED after the last valid one.
            drawn: requests whose next drafts are drawn, in that order.
        """
        if self._sends:
            self._clock.start(Stage.SEND)
            self._link.send_sampled(sampled)
            self._clock.stop(Stage.SEND)
        if step.num_spec_tokens_to_schedule:
            self._expect(step, drawn)
        count_drafts(step, sampled, self._clock, self._table.missing)

    def close(self) -> None:
        """Exchange nothing any more."""
        self._link.close()

    def _expect(self, step: Step, drawn: Sequence[str]) -> None:
        requests = list(step.num_scheduled_tokens)
        proposed = [request for request in drawn if request not in self._unknown]
        self._unread.append(Unread(self.call, requests, proposed))
        self._link.expect_drafts(len(requests))
        if proposed:
            self._link.expect_proposals(len(proposed), self._vocabulary)

    def _receive(self, newest: int) -> None:
        while self._unread and self._unread[0].call <= newest:
            call, requests, proposed = self._unread.popleft()
            drafts = self._link.recv_drafts(len(requests)).tolist()
            self._table.store(call, requests, drafts, self._receive_proposals(proposed))

    def _receive_proposals(self, proposed: Sequence[str]) -> dict[str, Tensor]:
        if not proposed:
            return {}
        proposals = self._link.recv_proposals(len(proposed), self._vocabulary)
        whole = proposals[:, 0, 0].isfinite().tolist()
        return {request: rows for request, rows, is_one in zip(proposed, proposals, whole, strict=True) if is_one}


class DrafterLane:
    """The drafter's side.

    Args:
        link: its end of the link.
        clock: where its stages are recorded.
        last: the number of the call before the first that it takes part in.
    """

    def __init__(self, link: DrafterEnd, clock: StageClock, last: int = 0) -> None:
        self._link, self._clock = link, clock
        self._table = DraftTable()
        self._numbers = CallNumbers(last)

    @property
    def call(self) -> int:
        """The number of the call that has begun last."""
        return self._numbers.last

    @property
    def judged(self) -> Mapping[str, int]:
        """How many drafts of this drafter each request has verified in that call; requests that have some."""
        return self._table.drafted

    @property
    def missing(self) -> Mapping[str, int]:
        """How many zeros stand for missing drafts of each request in that call; requests that have some."""
        return self._table.missing

    def begin(self, step: Step) -> None:
        """Begin a call: put the drafts that the verifiers check now into the step, as they do."""
        call = self._numbers.next(step)
        self._table.fill(step, call)
        if step.num_scheduled_tokens:
            self._clock.begin(call)
            count(step, self._clock)
            self._link.expect_sampled(len(step.num_scheduled_tokens))
            self._clock.start(Stage.PREPARE)

    def sampled(self, step: Step) -> Tensor:
        """What the verifiers sampled in this call: [requests, 1 + most drafts of a request] int32.

        That is the shape of vLLM's own sampler's output, which its draft proposer takes.

        Raises:
            LinkError: it did not come in time.
        """
        self._clock.start(Stage.RECV)
        sampled = self._link.recv_sampled(len(step.num_scheduled_tokens))
        self._clock.stop(Stage.RECV)
        return sampled[:, : 1 + max(map(len, step.scheduled_spec_decode_tokens.values()), default=0)]

    def drafted(self, step: Step, drafts: Tensor, proposals: Tensor | None = None) -> None:
        """Send drafts; in calls that ask for some.

        Args:
            step: the call's step.
            drafts: [requests, drafts] ids, in the order of messages; `NO_DRAFT` after a row's last one.
            proposals: [requests whose drafts were drawn, drafts, vocabulary], in that order; None: there are none.
        """
        self._clock.start(Stage.SEND)
        self._link.send_drafts(drafts)
        if proposals is not None:
            self._link.send_proposals(proposals)
        self._table.store(self.call, list(step.num_scheduled_tokens), drafts.tolist())
        self._clock.stop(Stage.SEND)

    def close(self) -> None:
        """Exchange nothing any more."""
        self._link.close()
