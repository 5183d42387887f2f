"""Which requests of vLLM's scheduler take part in a call, so that two batches take turns; in the engine process.

A mix-in, to stand before one of vLLM's schedulers (`v1/core/sched/scheduler.py`, 0.32.0): the synchronous one for its
V1 runner (`scheduler.py`), the asynchronous one for its V2 runner (`scheduler_v2.py`). Two calls are under way at a
time, and a request may be scheduled again when its result is in: so two batches take turns, and a batch's result is
known before it is scheduled. Only its drafts are not: they go from the drafter to the verifiers directly, and the
scheduler writes placeholders for them.
"""

from itertools import islice
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from worker.minedraft import config
from worker.minedraft.batches import Joining, Load, plan_turn
from worker.minedraft.checks import check_engine
from worker.minedraft.engine_clock import EngineClock
from worker.minedraft.lanes import CallNumbers
from worker.minedraft.pace import Pace
from worker.minedraft.presence import Presence, State


class TwoBatches(Scheduler):  # type: ignore[misc] # vLLM's types are not read
    """Verifies each running request in every second call, half of the work in each.

    Without a drafter, and while few rows are left that do better so, all are verified together.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_engine(self.vllm_config)
        self._most_active: int = self.max_num_active_reqs  # type: ignore[has-type]
        self._under_way = 0  # calls
        self._drafting, self._in_one = True, False
        self._short = False  # whether fewer joined than the plan was made for
        folder = config.folder()
        self._presence = Presence(folder)
        self._pace = Pace(folder)
        self._clock = EngineClock(folder)
        self._numbers = CallNumbers()

    def has_requests(self) -> bool:
        """Whether there is something to schedule now; while not, vLLM waits for the result of a call under way.

        Otherwise it would make an empty call each time one batch is alone.
        """
        if not super().has_requests():
            return False
        if not self._under_way:
            return True
        if self._presence.state is State.WAITING:
            return False
        if self._together(self._presence.drafting):
            return any(request.is_prefill_chunk for request in self.running)
        room = self._most_active - len(self.running)
        return any(map(_is_ready, self.running)) or (room > 0 and bool(self.waiting))

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Schedule the batch whose turn it is, with the newcomers that keep the batches balanced."""
        with self._clock.scheduling() as numbered:
            output = self._schedule(throttle_prefills)
            numbered(self._numbers.next(output))
        self._under_way += 1
        return output

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """Take in a result."""
        self._under_way -= 1
        with self._clock.updating():
            return super().update_from_output(*args, **kwargs)

    def _schedule(self, throttle_prefills: bool) -> SchedulerOutput:
        if self._presence.state is State.WAITING and not self._under_way:
            self._welcome()
        self._plan(self.current_step + 1)
        output = super().schedule(throttle_prefills)
        self._short = len(self.running) < self.max_num_active_reqs and bool(self.waiting)
        return output

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Do nothing: no drafts come this way."""

    def _welcome(self) -> None:
        """Let a new drafter join, with nothing under way: it has seen no token of any row, so all are read again.

        Blocks that were kept for their prefix are dropped, for the drafter has not filled its own.
        """
        self._presence.state = State.JOINING  # first: it may be lost meanwhile
        self.reset_prefix_cache(reset_running_requests=True)

    def _together(self, drafting: bool) -> bool:
        """Whether all rows are to be in one batch."""
        if not drafting:
            return True
        rows = len(self.running)
        # Few are left: newcomers would only have to be parted again.
        few = not self.waiting and 2 * rows <= self._most_active
        return few and self._pace.one_batch_is_faster(rows, now=self._in_one)

    def _plan(self, step: int) -> None:
        """Say of each running request whether it takes part in a step, and how many may join."""
        self._drafting = self._presence.drafting  # for the whole step: it may be lost at any moment
        self._in_one = self._together(self._drafting)
        ready: list[Request] = []
        under_way = 0
        for request in self.running:
            if _is_ready(request):
                ready.append(request)
                request.next_decode_eligible_step = step
                if not self._drafting:
                    request.spec_token_ids = []
            else:
                under_way += _work(request)
                request.next_decode_eligible_step = step + 1
        room = max(self._most_active - len(self.running), 0)
        work = 1 + self.num_spec_tokens * self._drafting
        loads = [Load(_work(request), _may_wait(request)) for request in ready]
        joining = [Joining(request.num_tokens, work) for request in islice(self.waiting, room)]
        turn = plan_turn(loads, under_way, joining, together=self._in_one)
        # Newcomers for whom there is no memory will not even out the batches.
        hold = plan_turn(loads, under_way, [], together=self._in_one).hold if self._short else turn.hold
        for index in hold:
            ready[index].next_decode_eligible_step = step + 1
        self.max_num_active_reqs = len(self.running) + turn.admit

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        if not self._drafting:
            _verify_nothing(scheduler_output)
        super()._update_after_schedule(scheduler_output)


def _verify_nothing(scheduler_output: SchedulerOutput) -> None:
    """Take back the placeholders that vLLM writes for a request that joins with one token to read."""
    drafts = scheduler_output.scheduled_spec_decode_tokens
    for request, placeholders in drafts.items():
        scheduler_output.num_scheduled_tokens[request] -= len(placeholders)
        scheduler_output.total_num_scheduled_tokens -= len(placeholders)
    drafts.clear()


def _is_ready(request: Request) -> bool:
    """Whether a running request's last result is in; the next part of a prompt needs no result of the part before."""
    return bool(request.is_prefill_chunk or not request.num_in_flight_tokens)


def _work(request: Request) -> int:
    """Tokens that it has verified in a turn."""
    return 1 + len(request.spec_token_ids)


def _may_wait(request: Request) -> bool:
    """Whether it may change batches: it decodes, and does not end with its next token."""
    return not request.is_prefill_chunk and request.max_tokens - request.num_output_tokens > 1
