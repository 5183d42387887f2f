"""The two-batch protocol where vLLM's V2 runner has its pipeline handler.

`GPUModelRunner` (`v1/worker/gpu/model_runner.py`, vLLM 0.32.0) asks `self.pp_handler`, where there is one, at the very
places where drafts cross: before it makes the inputs of a call (`get_prev_sampled_outputs`), when a slot is freed
(`on_req_idx_freed`), right after sampling (`broadcast`) and right after drafting (`broadcast_drafts`). The objects here
stand there. Their order of messages is that of `lanes.py`, with the same numbers of calls; rows go in the order of the
runner's batch, which is a function of the step alone (`sort_batch_req_ids`), so all ranks share it.

- *Consume early enough.* Before call n the drafts of all calls <= n-2 are received, of an empty call those of all
  calls <= n-1, whether or not anybody still wants them: no message stays unread, and all ranks receive the same ones.
- *Never receive what was not asked for.* A receive waits only for what a message sent before has already made the peer
  do: drafts(m) follow from sampled(m), which this rank's call m has sent.
- *Nothing stale.* Rows whose slot was freed meanwhile are dropped (`packets.Slots`).
- *Nothing is sent up where nothing is asked.* In a call in which no tokens are drafted
  (`num_spec_tokens_to_schedule`) the drafter runs its first pass, which keeps its KV cache whole, and that is all.
- *Found drafts are the same on all ranks.* Ids that the engine process has put into a step go into the table after what
  was received, on the drafter, too: its KV cache is of the tokens that are verified.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from worker.minedraft.event_clock import Clock
from worker.minedraft.lanes import CallNumbers, Step, count
from worker.minedraft.link import DeviceDrafterEnd, VerifierIds
from worker.minedraft.packets import Found, Numbers, Slots, accepted, found, pack, scatter, unpack, upload
from worker.minedraft.stages import Stage


class Unread(NamedTuple):
    """A call whose drafts have not been received.

    Attributes:
        call: its number.
        slots: [rows] of its requests.
        generations: [rows] whose the slots were.
    """

    call: int
    slots: Numbers
    generations: Numbers


class VerifierPipeline:
    """A verifier's side.

    Args:
        link: its end of the link, or what it has in place of one.
        clock: where its stages are recorded.
        drafts: drafted tokens a request and step.
        most: slots that the runner has.
    """

    def __init__(self, link: VerifierIds, clock: Clock, drafts: int, most: int) -> None:
        self._link, self._clock, self._drafts = link, clock, drafts
        self._slots = Slots(most)
        self._numbers = CallNumbers()
        self._unread: deque[Unread] = deque()
        self._newest = 0  # whose drafts, and all before them, are due
        self._asked = 0  # tokens to draft in the call that has begun last
        self._found: Found | None = None

    @property
    def call(self) -> int:
        """The number of the call that has begun last."""
        return self._numbers.last

    def begin(self, step: Step, slots: Mapping[str, int]) -> None:
        """A call begins; what is due in it is received when the runner asks.

        Args:
            step: the call's.
            slots: of the requests that were there before it.
        """
        call = self._numbers.next(step)
        self._asked, self._found = step.num_spec_tokens_to_schedule, found(step, slots, self._drafts)
        self._newest = call - 2 if step.num_scheduled_tokens else call - 1
        if step.num_scheduled_tokens:
            self._clock.begin(call)
            count(step, self._clock)
        else:
            self._clock.flush()

    def get_prev_sampled_outputs(self, draft_tokens: Tensor) -> None:
        """Receive the drafts that are due. (vLLM's name, and its place: first thing in a call.)

        Args:
            draft_tokens: [slots, drafts] of all requests; written.

        Raises:
            LinkError: drafts did not come in time.
        """
        self._clock.start(Stage.RECV)
        while self._unread and self._unread[0].call <= self._newest:
            _, slots, generations = self._unread.popleft()
            drafts = self._link.recv_drafts(len(slots)).to(draft_tokens.device, non_blocking=True)
            scatter(draft_tokens, slots, self._slots.kept(slots, generations), drafts)
        if self._found is not None:
            self._found.put(draft_tokens)
        self._clock.stop(Stage.RECV)
        self._clock.start(Stage.PREPARE)

    def on_req_idx_freed(self, req_idx: int) -> None:
        """A slot is free. (vLLM's name.)"""
        self._slots.freed(req_idx)

    def broadcast(self, sampled_token_ids: Tensor, num_sampled: Tensor, num_rejected: Tensor, input_batch: Any) -> None:
        """Pass on what was sampled. (vLLM's name.)

        Args:
            sampled_token_ids: [rows, up to drafts + 1] ids.
            num_sampled: [rows] valid ones.
            num_rejected: [rows] drafts that were not accepted.
            input_batch: vLLM's `InputBatch`: whose rows these are.
        """
        slots = np.asarray(input_batch.idx_mapping_np, np.int64)
        self._clock.start(Stage.SEND)
        self._link.send_sampled(pack(sampled_token_ids, num_sampled, num_rejected, self._drafts))
        if self._asked:
            self._unread.append(Unread(self.call, slots, self._slots.snapshot(slots)))
            self._link.expect_drafts(len(slots))
        self._clock.stop(Stage.SEND)
        drafted = input_batch.num_draft_tokens_per_req
        if drafted is None:
            drafted = np.zeros(len(slots), np.int32)
        self._clock.drafts(drafted, accepted(num_sampled, upload(drafted, num_sampled.device)))

    def broadcast_drafts(self, draft_tokens: Tensor, input_batch: Any) -> None:
        """Nothing: a verifier drafts nothing. (vLLM's name.)"""

    def rejoin(self, link: VerifierIds) -> None:
        """Go on with another drafter, which knows nothing of calls before.

        Args:
            link: the new end.
        """
        self._link.close()
        self._link = link
        self._unread.clear()

    def close(self) -> None:
        """Exchange nothing any more."""
        self._link.close()


class DrafterPipeline:
    """The drafter's side.

    Args:
        link: its end of the link.
        clock: where its stages are recorded.
        drafts: drafted tokens a request and step, at most.
        last: the number of the call before the first that it takes part in.
    """

    #: How many calls before a call its drafts must have been sent. vLLM keeps two sets of the buffers that it uploads
    #: from (`v1/worker/gpu/buffer_utils.py`), for a rank whose call n - 2 has ended when it is given call n: the
    #: verifiers' has, but a drafter that runs ahead may still be drafting for it.
    AHEAD = 2

    def __init__(self, link: DeviceDrafterEnd, clock: Clock, drafts: int, last: int = 0) -> None:
        self._link, self._clock, self._drafts = link, clock, drafts
        self._numbers = CallNumbers(last)
        self._sent: deque[int] = deque()  # calls that may still be under way
        self._asked = 0  # tokens to draft in the call that has begun last
        self._found: Found | None = None

    @property
    def call(self) -> int:
        """The number of the call that has begun last."""
        return self._numbers.last

    def begin(self, step: Step, slots: Mapping[str, int]) -> None:
        """A call begins: wait until the buffers that it takes are free.

        Args:
            step: the call's.
            slots: of the requests that were there before it.
        """
        call = self._numbers.next(step)
        self._asked, self._found = step.num_spec_tokens_to_schedule, found(step, slots, self._drafts)
        while self._sent and self._sent[0] <= call - self.AHEAD:
            self._sent.popleft()
        self._link.wait_sent(len(self._sent))
        if step.num_scheduled_tokens:
            self._clock.begin(call)
            count(step, self._clock)
            self._link.expect_sampled(len(step.num_scheduled_tokens))
            self._clock.start(Stage.PREPARE)
        else:
            self._clock.flush()

    def sampled(self, rows: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """What the verifiers sampled in this call.

        Args:
            rows: of the call.
            device: where it is wanted.

        Returns:
            [rows, drafts + 1] int64 ids, [rows] int32 valid ones, [rows] int32 rejected drafts.

        Raises:
            LinkError: it did not come in time.
        """
        self._clock.stop(Stage.PREPARE)
        self._clock.start(Stage.RECV)
        packet = self._link.recv_sampled(rows).to(device, non_blocking=True)
        self._clock.stop(Stage.RECV)
        self._clock.start(Stage.DRAFT)
        return unpack(packet)

    def broadcast_drafts(self, draft_tokens: Tensor, input_batch: Any) -> None:
        """Send what was drafted, if anything was. (vLLM's name.)

        Args:
            draft_tokens: [slots, drafts] of all requests.
            input_batch: vLLM's `InputBatch`: whose were drafted.
        """
        self._clock.stop(Stage.DRAFT)
        if self._asked:
            self._clock.start(Stage.SEND)
            self._link.send_drafts(draft_tokens[input_batch.idx_mapping])
            self._clock.stop(Stage.SEND)
        else:
            self._link.send_nothing()
        self._sent.append(self.call)

    def get_prev_sampled_outputs(self, draft_tokens: Tensor) -> None:
        """What was drafted is in this rank's table already; what was found is not. (vLLM's name.)"""
        if self._found is not None:
            self._found.put(draft_tokens)

    def on_req_idx_freed(self, req_idx: int) -> None:
        """Nothing: no message to this rank outlives its call. (vLLM's name.)"""

    def broadcast(self, *_: Any) -> None:
        """Nothing: this rank does not sample. (vLLM's name.)"""

    def close(self) -> None:
        """Exchange nothing any more."""
        self._link.close()
