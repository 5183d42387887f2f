"""What one rank does with drafts in each step: the protocol of the two batches, without vLLM and without devices.

The engine gives every rank the same calls in the same order, at most two before the first has ended. Call n:

    verifier   consume drafts (all of calls <= n-2) -> forward -> sample -> send sampled(n)
    drafter    receive sampled(n) -> draft -> send drafts(n)

Every call is numbered; one without requests exchanges nothing, but the verifiers then consume all of calls <= n-1.
While there is one batch alone the engine makes no empty calls between its turns, and numbers go on as if it did
(`CallNumbers`).

- *No message stays unread.* Calls alternate between the batches, so the drafts that call n needs are those of a call
  <= n-2. The engine makes an empty call after the last request has ended, and that one takes what is left.
- *No deadlock.* Sends never wait. A receive waits only for what the same, or an earlier, call has already made the
  peer do: sampled(n) needs drafts <= n-2 and drafts(n) needs sampled(n), so no chain of waits comes back to itself.

`tests/unit/worker/minedraft/test_protocol.py` runs through every interleaving.
"""

from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from worker.minedraft.event_clock import Clock
from worker.minedraft.link import REJECTED, DrafterEnd, VerifierEnd
from worker.minedraft.relay import NO_DRAFT
from worker.minedraft.stages import Stage, StageClock


class Step(Protocol):
    """What a lane reads of vLLM's `SchedulerOutput` (`v1/core/sched/output.py`).

    Attributes:
        num_scheduled_tokens: tokens of each request; its order is the order of rows in messages.
        scheduled_spec_decode_tokens: drafted tokens of each request that has some, among those; placeholders.
        finished_req_ids: requests that will not come back.
        total_num_scheduled_tokens: the sum; 0 in an empty call.
    """

    num_scheduled_tokens: dict[str, int]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    finished_req_ids: set[str]
    total_num_scheduled_tokens: int


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
    clock.count(requests=len(step.num_scheduled_tokens), tokens=step.total_num_scheduled_tokens, prefill=reading)


def count_drafts(step: Step, sampled: Tensor, clock: Clock) -> None:
    """Record how many drafts were verified, and accepted.

    Args:
        step: the call's step.
        sampled: [requests, up to drafts + 1] ids in the order of messages, REJECTED after the last valid one.
        clock: where to.
    """
    drafts = step.scheduled_spec_decode_tokens
    drafted = np.fromiter((len(drafts.get(request, ())) for request in step.num_scheduled_tokens), np.int64)
    lengths = np.count_nonzero(sampled.numpy() != REJECTED, axis=1)
    clock.drafts(drafted, np.where(drafted > 0, lengths - 1, 0))


class DraftTable:
    """The newest drafts of each request that has not ended.

    Attributes:
        proposals: [drafts, vocabulary] what the drafts of a request were drawn from, where they were, of the step that
            was filled last. Each is of use once: when drafts are verified again, more than chance has chosen them.
    """

    def __init__(self) -> None:
        self.proposals: dict[str, Tensor] = {}
        self._drafts: dict[str, Sequence[int]] = {}
        self._kept: dict[str, Tensor] = {}

    def store(
        self, requests: Sequence[str], drafts: Sequence[Sequence[int]], proposals: Mapping[str, Tensor] | None = None
    ) -> None:
        """Keep a message's rows, except those of requests that ended while it was under way.

        Where the drafter was lost rows hold `NO_DRAFT`, and their requests have no drafts.
        """
        proposals = proposals or {}
        for request, row in zip(requests, drafts, strict=True):
            if request in self._drafts:
                self._drafts[request] = row if row[0] != NO_DRAFT else ()
                self._kept.pop(request, None)
                if request in proposals:
                    self._kept[request] = proposals[request]

    def forget_drafts(self) -> None:
        """Nobody has drafts any more."""
        self._drafts = dict.fromkeys(self._drafts, ())
        self._kept.clear()

    def fill(self, step: Step) -> None:
        """Put drafts in place of the step's placeholders; forget requests that have ended.

        A placeholder without a draft becomes token 0, which is as lossless as any other guess: vLLM also schedules
        some for requests that resume (`Scheduler.schedule`, "pad new decode requests"), and -1 is no token.
        """
        for request in step.finished_req_ids:
            self._drafts.pop(request, None)
            self._kept.pop(request, None)
        for request in step.num_scheduled_tokens:
            self._drafts.setdefault(request, ())
        for request, placeholders in step.scheduled_spec_decode_tokens.items():
            drafts, count = self._drafts[request], len(placeholders)
            if len(drafts) != count:
                drafts = [*drafts[:count], *[0] * (count - len(drafts))]
            step.scheduled_spec_decode_tokens[request] = list(drafts)
        drafted = step.scheduled_spec_decode_tokens
        self.proposals = {request: self._kept.pop(request) for request in [*self._kept] if request in drafted}

    @property
    def requests(self) -> Set[str]:
        """Those that it knows."""
        return self._drafts.keys()

    def __len__(self) -> int:
        """How many that are."""
        return len(self._drafts)


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
        self._table.fill(step)
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
        proposed = [request for request in drawn if request not in self._unknown]
        self._unread.append(Unread(self.call, list(step.num_scheduled_tokens), proposed))
        if self._sends:
            self._clock.start(Stage.SEND)
            self._link.send_sampled(sampled)
            self._clock.stop(Stage.SEND)
        self._link.expect_drafts(len(sampled))
        if proposed:
            self._link.expect_proposals(len(proposed), self._vocabulary)
        count_drafts(step, sampled, self._clock)

    def close(self) -> None:
        """Exchange nothing any more."""
        self._link.close()

    def _receive(self, newest: int) -> None:
        while self._unread and self._unread[0].call <= newest:
            _, requests, proposed = self._unread.popleft()
            drafts = self._link.recv_drafts(len(requests)).tolist()
            self._table.store(requests, drafts, self._receive_proposals(proposed, drafts[0][0] != NO_DRAFT))

    def _receive_proposals(self, proposed: Sequence[str], drafted: bool) -> dict[str, Tensor]:
        if not proposed or not drafted:
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

    def begin(self, step: Step) -> None:
        """Begin a call: put the drafts that the verifiers check now into the step, as they do."""
        call = self._numbers.next(step)
        self._table.fill(step)
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
        """Send drafts.

        Args:
            step: the call's step.
            drafts: [requests, drafts] ids, in the order of messages.
            proposals: [requests whose drafts were drawn, drafts, vocabulary], in that order; None: there are none.
        """
        self._clock.start(Stage.SEND)
        self._link.send_drafts(drafts)
        if proposals is not None:
            self._link.send_proposals(proposals)
        self._table.store(list(step.num_scheduled_tokens), drafts.tolist())
        self._clock.stop(Stage.SEND)

    def close(self) -> None:
        """Exchange nothing any more."""
        self._link.close()
