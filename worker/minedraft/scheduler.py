"""vLLM's scheduler, with two batches that take turns. Named by `--scheduler-cls`; runs in the engine process.

Built on the *synchronous* `Scheduler` (`vllm/v1/core/sched/scheduler.py`, 0.32.0): with two steps in flight and strict
alternation, a batch's result is known before the batch is scheduled again. Only its drafts are not: they go from the
drafter to the verifiers directly, and the scheduler writes placeholders for them.
"""

from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from worker.minedraft import config
from worker.minedraft.batches import plan_turn
from worker.minedraft.checks import check_engine
from worker.minedraft.engine_clock import EngineClock

#: Steps from one verification of a request to the next: its own batch's turn, and the other's.
CYCLE = 2
#: Stands for a drafted token that the scheduler never sees.
PLACEHOLDER = -1


class TwoBatchScheduler(Scheduler):  # type: ignore[misc] # vLLM's types are not read
    """Verifies each running request in every second step, half of them in each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_engine(self.vllm_config)
        self._placeholders = [PLACEHOLDER] * self.num_spec_tokens
        self._most_active: int = self.max_num_active_reqs
        self._clock = EngineClock(config.folder())

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Schedule the batch whose turn it is, with the newcomers that keep the batches balanced."""
        with self._clock.scheduling():
            return self._schedule(throttle_prefills)

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """Take in a result."""
        with self._clock.updating():
            return super().update_from_output(*args, **kwargs)

    def _schedule(self, throttle_prefills: bool) -> SchedulerOutput:
        step = self.current_step + 1
        mine = [request for request in self.running if request.next_decode_eligible_step <= step]
        running = len(self.running)
        turn = plan_turn(len(mine), running - len(mine), len(self.waiting), self._most_active - running)
        self._hold(mine, turn.hold, step)
        # vLLM sends a worker all token ids of each request that was not in the step before: here all requests,
        # every time (2 ms to pickle and 3.5 ms to unpickle for 64 requests of 2,000 tokens). Synchronous workers
        # never read them; a request that resumes after a preemption is not running now, and still brings them.
        self.prev_step_scheduled_req_ids.update(request.request_id for request in self.running)
        self.max_num_active_reqs = running + turn.admit
        return super().schedule(throttle_prefills)

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Do nothing: no drafts come this way."""

    def _hold(self, mine: list[Request], count: int, step: int) -> None:
        """Let `count` requests of the batch wait until the next step, the newest first."""
        for request in reversed(mine):
            if count == 0:
                return
            if not request.is_prefill_chunk:
                request.next_decode_eligible_step = step + 1
                count -= 1

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        self._draft_nothing_under_a_grammar(scheduler_output)
        super()._update_after_schedule(scheduler_output)
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests[request_id]
            if request.is_prefill_chunk:
                continue  # the next chunk needs no result of this one: it may come in the very next step
            request.next_decode_eligible_step = self.current_step + CYCLE
            request.spec_token_ids = self._placeholders.copy()

    def _draft_nothing_under_a_grammar(self, scheduler_output: SchedulerOutput) -> None:
        """Take back the placeholders of requests with a grammar, those that vLLM itself writes for one that joins too.

        The grammar, in this process, would have to see the drafts: it has no say in what follows one that is accepted,
        as the zero that stands in for a missing draft may be.
        """
        drafts = scheduler_output.scheduled_spec_decode_tokens
        for request_id in [name for name in drafts if self.requests[name].use_structured_output]:
            count = len(drafts.pop(request_id))
            scheduler_output.num_scheduled_tokens[request_id] -= count
            scheduler_output.total_num_scheduled_tokens -= count
