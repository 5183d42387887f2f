"""What one rank does with drafts in each step: the protocol of the two batches, without vLLM and without devices.

The engine gives every rank the same calls in the same order, at most two before the first has ended. Call n:

    verifier   consume drafts (all of calls <= n-2) -> forward -> sample -> send sampled(n)
    drafter    receive sampled(n) -> draft -> send drafts(n)

Every call is numbered; one without requests exchanges nothing, but the verifiers then consume all of calls <= n-1.

- *No message stays unread.* Calls alternate between the batches, so the drafts that call n needs are those of a call
  <= n-2. The engine makes an empty call after the last request has ended, and that one takes what is left.
- *No deadlock.* Sends never wait. A receive waits only for what the same, or an earlier, call has already made the
  peer do: sampled(n) needs drafts <= n-2 and drafts(n) needs sampled(n), so no chain of waits comes back to itself.

`tests/unit/worker/minedraft/test_protocol.py` runs through every interleaving.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from worker.minedraft.link import REJECTED, Link
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


def count(step: Step, clock: StageClock) -> None:
    """Record how much a step holds."""
    drafts = step.scheduled_spec_decode_tokens
    reading = sum(tokens > 1 + len(drafts.get(request, ())) for request, tokens in step.num_scheduled_tokens.items())
    clock.count(requests=len(step.num_scheduled_tokens), tokens=step.total_num_scheduled_tokens, prefill=reading)


def count_drafts(step: Step, sampled: Tensor, clock: StageClock) -> None:
    """Record how many drafts were verified, and accepted.

    Args:
        step: the call's step.
        sampled: [requests, up to drafts + 1] ids in the order of messages, REJECTED after the last valid one.
        clock: where to.
    """
    lengths = (sampled != REJECTED).sum(dim=1).tolist()
    drafted = [len(step.scheduled_spec_decode_tokens.get(request, ())) for request in step.num_scheduled_tokens]
    clock.drafts(drafted, [n - 1 if d else 0 for d, n in zip(drafted, lengths, strict=True)])


class DraftTable:
    """The newest drafts of each request that has not ended."""

    def __init__(self) -> None:
        self._drafts: dict[str, Sequence[int]] = {}

    def store(self, requests: Sequence[str], drafts: Sequence[Sequence[int]]) -> None:
        """Keep a message's rows, except those of requests that ended while it was under way."""
        for request, row in zip(requests, drafts, strict=True):
            if request in self._drafts:
                self._drafts[request] = row

    def fill(self, step: Step) -> None:
        """Put drafts in place of the step's placeholders; forget requests that have ended.

        A placeholder without a draft becomes token 0, which is as lossless as any other guess: vLLM also schedules
        some for requests that resume (`Scheduler.schedule`, "pad new decode requests"), and -1 is no token.
        """
        for request in step.finished_req_ids:
            self._drafts.pop(request, None)
        for request in step.num_scheduled_tokens:
            self._drafts.setdefault(request, ())
        for request, placeholders in step.scheduled_spec_decode_tokens.items():
            drafts = list(self._drafts[request][: len(placeholders)])
            step.scheduled_spec_decode_tokens[request] = drafts + [0] * (len(placeholders) - len(drafts))

    def __len__(self) -> int:
        """How many requests it knows."""
        return len(self._drafts)


class VerifierLane:
    """A verifier's side.

    Args:
        link: its end of the link.
        clock: where its stages are recorded.
        sends: whether this rank is the one that sends what was sampled (all ranks sample the same).
    """

    def __init__(self, link: Link, clock: StageClock, *, sends: bool) -> None:
        self._link, self._clock, self._sends = link, clock, sends
        self._table = DraftTable()
        self._call = 0
        self._unread: deque[tuple[int, list[str]]] = deque()  # calls whose drafts have not been received

    def begin(self, step: Step) -> None:
        """Begin a call: receive the drafts that are due and put them into the step.

        Raises:
            LinkError: drafts did not come in time.
        """
        self._call += 1
        requests = list(step.num_scheduled_tokens)
        if requests:
            self._clock.begin(self._call)
            self._clock.start(Stage.RECV)
        self._receive(self._call - 2 if requests else self._call - 1)
        self._table.fill(step)
        if requests:
            self._unread.append((self._call, requests))
            count(step, self._clock)
            self._clock.stop(Stage.RECV)
            self._clock.start(Stage.PREPARE)

    def sampled(self, step: Step, sampled: Tensor) -> None:
        """Pass on what was sampled.

        Args:
            step: the call's step.
            sampled: [requests, up to drafts + 1] ids in the order of messages, REJECTED after the last valid one.
        """
        if self._sends:
            self._clock.start(Stage.SEND)
            self._link.send_sampled(sampled)
            self._clock.stop(Stage.SEND)
        self._link.expect_drafts(len(sampled))
        count_drafts(step, sampled, self._clock)

    def _receive(self, newest: int) -> None:
        while self._unread and self._unread[0][0] <= newest:
            _, requests = self._unread.popleft()
            self._table.store(requests, self._link.recv_drafts(len(requests)).tolist())


class DrafterLane:
    """The drafter's side.

    Args:
        link: its end of the link.
        clock: where its stages are recorded.
    """

    def __init__(self, link: Link, clock: StageClock) -> None:
        self._link, self._clock = link, clock
        self._table = DraftTable()
        self._call = 0

    def begin(self, step: Step) -> None:
        """Begin a call: put the drafts that the verifiers check now into the step, as they do."""
        self._call += 1
        self._table.fill(step)
        if step.num_scheduled_tokens:
            self._clock.begin(self._call)
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

    def drafted(self, step: Step, drafts: Tensor) -> None:
        """Send [requests, drafts] ids, in the order of messages."""
        self._clock.start(Stage.SEND)
        self._link.send_drafts(drafts)
        self._table.store(list(step.num_scheduled_tokens), drafts.tolist())
        self._clock.stop(Stage.SEND)
