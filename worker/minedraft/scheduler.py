"""vLLM's synchronous scheduler, with two batches that take turns. Named by `--scheduler-cls`; in the engine process.

For vLLM's V1 runner. The workers are synchronous; that two calls are under way is known to the engine process alone. A
row's grammar, which is in this process, sees its drafts when a verifier has them (`shown_drafts.py`).
"""

from typing import Any

from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.outputs import DraftTokenIds

from worker.minedraft import config
from worker.minedraft.shown_drafts import ShownDrafts
from worker.minedraft.two_batches import TwoBatches

#: How much longer than a message between ranks it may take until drafts are shown (seconds): a drafter may be joining.
_SLACK_S = 30.0


class TwoBatchScheduler(TwoBatches):
    """Makes the masks of rows with a grammar when their drafts are shown."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shown = ShownDrafts.of_engine(self.vllm_config)
        folder = config.folder()
        self._patience_s = _SLACK_S + (config.DEADLINE_S if folder is None else config.read().deadline_s)

    def _schedule(self, throttle_prefills: bool) -> SchedulerOutput:
        # vLLM sends a worker all token ids of each request that was not in the step before: here all requests,
        # every time (2 ms to pickle and 3.5 ms to unpickle for 64 requests of 2,000 tokens). Synchronous workers
        # never read them; a request that resumes after a preemption is not running now, and still brings them.
        self.prev_step_scheduled_req_ids.update(request.request_id for request in self.running)
        return super()._schedule(throttle_prefills)

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        """What may be sampled in the newest call, at each draft's position too.

        The verifiers verify the drafts as they are. The first one of a row that the grammar does not allow is masked at
        its position, so it is rejected, and no later one of the row is looked at.

        Raises:
            NotShownError: a call's drafts did not come.
        """
        rows = self._drafted_under_a_grammar(scheduler_output)
        if rows:
            placeholders = scheduler_output.scheduled_spec_decode_tokens
            drafts = self._shown.wait(self._numbers.last, placeholders, self._patience_s)
            seen = DraftTokenIds(rows, [drafts[request] for request in rows])
            self.update_draft_token_ids_in_output(seen, scheduler_output)
        return super().get_grammar_bitmask(scheduler_output)

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        # Drafts are shown when the call before has ended: vLLM takes in that one's result first, and then asks for the
        # masks. Where there is no call before it asks at once (it could not wait: it would take a result from nowhere).
        pending = self._under_way > 0 and bool(self._drafted_under_a_grammar(scheduler_output))
        scheduler_output.pending_structured_output_tokens = pending

    def _drafted_under_a_grammar(self, scheduler_output: SchedulerOutput) -> list[str]:
        """Requests that have drafts and a grammar, but for those that were aborted since."""
        rows = ((name, self.requests.get(name)) for name in scheduler_output.scheduled_spec_decode_tokens)
        return [name for name, request in rows if request is not None and request.use_structured_output]
