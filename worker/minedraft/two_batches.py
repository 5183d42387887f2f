"""Which requests of vLLM's scheduler take part in a call, so that two batches take turns; in the engine process.

A mix-in, to stand before one of vLLM's schedulers (`v1/core/sched/scheduler.py`, 0.32.0): the synchronous one for its
V1 runner (`scheduler.py`), the asynchronous one for its V2 runner (`scheduler_v2.py`). Two calls are under way at a
time, and a request may be scheduled again when its result is in: so two batches take turns, and a batch's result is
known before it is scheduled. Only its drafts are not: they go from the drafter to the verifiers directly, and the
scheduler writes placeholders for them, or drafts that were found in text that is known here (`worker/strategies`).

What a call is to do travels with it: vLLM's own `num_spec_tokens_to_schedule`, tokens to draft for each of its rows,
and an attribute `way`, how rows take turns (`lanes.way_of`).
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from worker.minedraft import config
from worker.minedraft.batches import Joining, Load, plan_turn
from worker.minedraft.checks import check_engine
from worker.minedraft.conductor import PLAIN, Conductor
from worker.minedraft.engine_clock import EngineClock
from worker.minedraft.lanes import CallNumbers
from worker.minedraft.presence import Presence, State
from worker.strategies import seam
from worker.strategies.seam import Choice, Way

#: Stands for a drafted token that the scheduler never sees.
PLACEHOLDER = -1


class TwoBatches(Scheduler):  # type: ignore[misc] # vLLM's types are not read
    """Verifies each running request in every second call, half of the work in each; or all in each call.

    Which of them, and with how many drafts, its conductor decides; without a drafter all rows are decoded plainly.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_engine(self.vllm_config)
        self._most_active: int = self.max_num_active_reqs  # type: ignore[has-type]
        self._under_way = 0  # calls
        self._drafting = True
        self._found: list[tuple[Request, int]] = []  # in this call, and placeholders that each had
        self._short = False  # whether fewer joined than the plan was made for
        folder = config.folder()
        self._presence = Presence(folder)
        self._conductor = Conductor(
            folder, config.strategy(), self.num_spec_tokens, ahead=not self.vllm_config.use_v2_model_runner
        )
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
        if self._next().way is not Way.TWO:
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

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: Any) -> Any:
        """Take in a result."""
        self._under_way -= 1
        with self._clock.updating():
            _count_missing(scheduler_output, model_runner_output)
            for request, drafts, accepted in _verified(scheduler_output, model_runner_output):
                if request in self.requests:
                    self._conductor.verified(request, drafts, accepted)
            return super().update_from_output(scheduler_output, model_runner_output)

    def _schedule(self, throttle_prefills: bool) -> SchedulerOutput:
        if self._presence.state is State.WAITING and not self._under_way:
            self._welcome()
        self._plan(self.current_step + 1)
        output = super().schedule(throttle_prefills)
        self._restore(output)
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

    def _next(self) -> Choice:
        """What the next call does."""
        return self._conductor.next(self._load) if self._presence.drafting else PLAIN

    def _begin(self) -> Choice:
        return self._conductor.begin(self._load, len(self.running), drafting=self._drafting)

    def _load(self) -> seam.Load:
        return seam.Load(
            rows=len(self.running),
            waiting=bool(self.waiting),
            places=self._most_active,
            reading=sum(request.is_prefill_chunk for request in self.running),
        )

    def _plan(self, step: int) -> None:
        """Say of each running request whether it takes part in a step, and how many may join."""
        self._drafting = self._presence.drafting  # for the whole step: it may be lost at any moment
        together = self._begin().way is not Way.TWO
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
        work = 1 + self._conductor.places
        loads = [Load(_work(request), _may_wait(request)) for request in ready]
        joining = [Joining(request.num_tokens, work) for request in islice(self.waiting, room)]
        turn = plan_turn(loads, under_way, joining, together=together)
        # Newcomers for whom there is no memory will not even out the batches.
        hold = set(plan_turn(loads, under_way, [], together=together).hold if self._short else turn.hold)
        for index in hold:
            ready[index].next_decode_eligible_step = step + 1
        # Last: work is what is expected of a row, the same for both batches.
        self._find_drafts(request for index, request in enumerate(ready) if index not in hold)
        self.max_num_active_reqs = len(self.running) + turn.admit

    def _find_drafts(self, requests: Iterable[Request]) -> None:
        """Put what was found elsewhere in place of the draft model's drafts."""
        for request in requests:
            # A row with a grammar has as many drafts as its masks are for.
            if request.spec_token_ids or (self._drafting and _decodes_freely(request)):
                found = self._conductor.found(request)
                if found is not None:
                    self._found.append((request, len(request.spec_token_ids)))
                    request.spec_token_ids = found

    def _restore(self, scheduled: SchedulerOutput) -> None:
        """Of rows that there was no room for, forget what was found: by their next call it may be something else."""
        for request, places in self._found:
            waits = request.status is RequestStatus.RUNNING and request.request_id not in scheduled.num_scheduled_tokens
            if waits:
                request.spec_token_ids = [PLACEHOLDER] * places
        self._found.clear()

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        choice: Any = self._conductor.now
        scheduler_output.num_spec_tokens_to_schedule = choice.drafts
        scheduler_output.way = int(choice.way)
        if choice.drafts < self.num_spec_tokens:
            _take_back_padding(scheduler_output)
        super()._update_after_schedule(scheduler_output)
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests[name]
            if not request.is_prefill_chunk:
                request.spec_token_ids = [PLACEHOLDER] * self._conductor.most(name)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self._conductor.ended(request)
        return super()._free_request(request, *args, **kwargs)

    def make_spec_decoding_stats(
        self, stats: Any, num_draft_tokens: int, num_accepted_tokens: int, **which: Any
    ) -> Any:
        """Count drafts; a row whose drafts did not come was decoded plainly, and counts as such."""
        missing = (which["num_invalid_spec_tokens"] or {}).get(which["request_id"], 0)
        if missing == num_draft_tokens:
            return stats
        accepted = min(num_accepted_tokens, num_draft_tokens - missing)
        return super().make_spec_decoding_stats(stats, num_draft_tokens, accepted, **which)


def _take_back_padding(scheduler_output: SchedulerOutput) -> None:
    """Take back the placeholders that vLLM writes for requests that join with one token to read: all it can draft."""
    drafts = scheduler_output.scheduled_spec_decode_tokens
    joined = {new.req_id for new in scheduler_output.scheduled_new_reqs}
    for request in drafts.keys() & (joined | scheduler_output.scheduled_cached_reqs.resumed_req_ids):
        padding = len(drafts.pop(request))
        scheduler_output.num_scheduled_tokens[request] -= padding
        scheduler_output.total_num_scheduled_tokens -= padding


def _count_missing(scheduler_output: SchedulerOutput, output: Any) -> None:
    """Tell vLLM's counters of drafts that were scheduled and not verified (`draft_table.py`): as of invalid ones."""
    verified = getattr(output, "verified_drafts", None)
    if verified is None:
        return
    scheduled = scheduler_output.scheduled_spec_decode_tokens
    missing = {request: len(scheduled[request]) - drafts for request, drafts in verified.items()}
    # What a grammar does not allow may be the zeros that stand for missing drafts, too.
    invalid = scheduler_output.num_invalid_spec_tokens or {}
    scheduler_output.num_invalid_spec_tokens = {
        request: max(invalid.get(request, 0), missing.get(request, 0)) for request in invalid.keys() | missing.keys()
    }


def _verified(scheduler_output: SchedulerOutput, output: Any) -> Iterable[tuple[str, int, int]]:
    """Of each request that had drafts: how many were verified, and accepted."""
    missing = scheduler_output.num_invalid_spec_tokens or {}
    for request, drafts in scheduler_output.scheduled_spec_decode_tokens.items():
        sampled = output.sampled_token_ids[output.req_id_to_index[request]] if output.sampled_token_ids else ()
        if len(sampled):
            verified = len(drafts) - missing.get(request, 0)
            yield request, verified, min(len(sampled) - 1, verified)  # a zero that stands for none may be right


def _is_ready(request: Request) -> bool:
    """Whether a running request's last result is in; the next part of a prompt needs no result of the part before."""
    return bool(request.is_prefill_chunk or not request.num_in_flight_tokens)


def _work(request: Request) -> int:
    """Tokens that it has verified in a turn."""
    return 1 + len(request.spec_token_ids)


def _decodes_freely(request: Request) -> bool:
    return not request.is_prefill_chunk and not request.use_structured_output


def _may_wait(request: Request) -> bool:
    """Whether it may change batches: it decodes, and does not end with its next token."""
    return not request.is_prefill_chunk and request.max_tokens - request.num_output_tokens > 1
