"""vLLM's asynchronous scheduler, with two batches that take turns. Named by `--scheduler-cls`; in the engine process.

For vLLM's V2 runner, whose workers are asynchronous too: they keep drafts and sampled ids on their devices, and the
scheduler writes placeholders for both (`v1/core/sched/async_scheduler.py`, vLLM 0.32.0).
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput

from worker.minedraft.two_batches import TwoBatches

#: Calls from one verify pass of a request to the next.
_STAGGER = 2


class AsyncTwoBatchScheduler(TwoBatches, AsyncScheduler):  # type: ignore[misc] # vLLM's types are not read
    """Schedules drafts for every row; those of rows with a grammar are looked at here before they are sampled from.

    vLLM does that: it defers the masks of a call whose `pending_structured_output_tokens` says so until the result of
    the call before is in, and then asks a verifier for the call's drafts (`EngineCore.step_with_batch_queue`), which
    has them since it began the call (`runner_v2.VerifierRunner.prepare_attn`).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # vLLM's own way to keep a request out of the next calls, made for pipeline stages: two batches are two of them.
        self.decode_stagger = _STAGGER

    def _schedule(self, throttle_prefills: bool) -> SchedulerOutput:
        if not self._under_way:
            # There is no call whose result vLLM could wait for: it would make the masks without drafts, and reject all.
            for request in self.running:
                if request.use_structured_output:
                    request.spec_token_ids = []
        return super()._schedule(throttle_prefills)

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        scheduler_output.pending_structured_output_tokens = self._under_way > 0 and any(
            self.requests[request_id].use_structured_output
            for request_id in scheduler_output.scheduled_spec_decode_tokens
        )
