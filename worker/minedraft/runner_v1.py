"""vLLM 0.32's V1 model runner (`vllm/v1/worker/gpu_model_runner.py`) as verifier and as drafter: all that knows it.

Every rank keeps the same requests and block tables, because every rank gets the same `SchedulerOutput`s. A verifier
runs the target model and never drafts. The drafter runs no target model: it takes what the verifier sampled for its own
sample, and vLLM's own proposer (`proposer.py`) drafts from there; ahead (`Way.AHEAD`) it drafts first.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import SamplerOutput
from vllm.v1.worker.gpu_input_batch import CachedRequestState

from worker.minedraft.admitting import Admitting, guessed, message
from worker.minedraft.input_batches import InputBatches
from worker.minedraft.lanes import DrafterLane, Step, VerifierLane, way_of
from worker.minedraft.link import REJECTED
from worker.minedraft.platform import RankRunner
from worker.minedraft.proposer import Proposer
from worker.minedraft.sampling import DraftSampler, has_proposals, logits_processors
from worker.minedraft.shown_drafts import ShownDrafts
from worker.minedraft.stages import Stage, StageClock
from worker.minedraft.stub_target import StubTarget
from worker.strategies.seam import Admission, Counts, Way

#: What a drafter is told of a row whose drafts are not drawn: what is sampled is the verifiers' business.
_GREEDY = SamplingParams(temperature=0)


class NoProposer:
    """Drafts nothing: what a verifier has where vLLM expects a proposer (method `custom_class`)."""

    def __init__(self, config: Any) -> None:
        pass

    def load_model(self, target: nn.Module) -> None:
        """Load nothing."""

    def propose(self, sampled_token_ids: Sequence[Any], *_: Any, **__: Any) -> list[list[int]]:
        """No drafts for any request."""
        return [[] for _ in sampled_token_ids]


def draft_nothing(config: Any) -> None:
    """Give this process's copy of a `VllmConfig` the proposer that drafts nothing."""
    proposer = f"{NoProposer.__module__}.{NoProposer.__qualname__}"
    config.speculative_config.method, config.speculative_config.model = "custom_class", proposer


class LaneRunner(RankRunner):
    """What verifier and drafter share: a lane that is there once warm-up is over, and the way to its order of rows."""

    lane: Any = None
    step: Step
    clock: StageClock

    def begin(self, step: Step) -> None:
        """Begin a call; before warm-up is over it exchanges nothing."""
        self.step = step
        if self.lane is not None:
            self.lane.begin(step)

    def rows(self, requests: Iterable[str] | None = None) -> Tensor:
        """[requests] where requests, by default those of a message, stand in this runner's batch."""
        index = self.input_batch.req_id_to_index
        named = self.step.num_scheduled_tokens if requests is None else requests
        return torch.tensor([index[request] for request in named], dtype=torch.long)

    def drawn(self) -> list[str]:
        """The requests of a message whose drafts are drawn from proposals, in its order; none that reads its prompt."""
        if self.speculative_config.draft_sample_method == "greedy":
            return []
        reading, index = self.discard_request_mask.np, self.input_batch.req_id_to_index
        return [
            request
            for request in self.step.num_scheduled_tokens
            if has_proposals(self.requests[request].sampling_params) and not reading[index[request]]
        ]


class TwoBatchRunner(LaneRunner):
    """Gives each of the two batches a persistent batch of its own."""

    batches: InputBatches

    def begin(self, step: Step) -> None:
        """Begin a call, with the other persistent batch than in the call before."""
        super().begin(step)
        if self.lane is not None:
            with torch.inference_mode():  # as vLLM's steps: rows hold tensors that were made in them
                self.input_batch = self.batches.of_call(self.lane.call, step)


class TargetRunner(LaneRunner):
    """Runs the target model, with a clock."""

    def _model_forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.lane is None:
            return super()._model_forward(*args, **kwargs)
        self.clock.stop(Stage.PREPARE)
        self.clock.start(Stage.FORWARD)
        output = super()._model_forward(*args, **kwargs)
        self.clock.stop(Stage.FORWARD)
        return output

    def _sample(self, *args: Any, **kwargs: Any) -> Any:
        if self.lane is None:
            return super()._sample(*args, **kwargs)
        self.clock.start(Stage.SAMPLE)
        output = super()._sample(*args, **kwargs)
        self.clock.stop(Stage.SAMPLE)
        self.lane.sampled(self.step, output.sampled_token_ids[self.rows()], self.drawn())
        return output

    def sample_tokens(self, grammar_output: Any) -> Any:
        """End a call."""
        output = super().sample_tokens(grammar_output)
        if self.lane is not None:
            self.clock.commit()
        return output


class VerifierRunner(TargetRunner, TwoBatchRunner):
    """Runs the target model on drafts that come from elsewhere."""

    lane: VerifierLane | None

    @cached_property
    def _shown(self) -> ShownDrafts | None:
        """Where the first verifier leaves its drafts for the grammars; all verifiers have the same."""
        return ShownDrafts.of_engine(self.vllm_config) if self.parallel_config.rank == 0 else None

    def begin(self, step: Step) -> None:
        """Begin a call, and show the drafts that it verifies."""
        super().begin(step)
        if self.lane is not None and self._shown is not None and step.scheduled_spec_decode_tokens:
            self._shown.show(self.lane.call, step.scheduled_spec_decode_tokens)

    def sample_tokens(self, grammar_output: Any) -> Any:
        """End a call, and report how many drafts each row has verified, where one has fewer than were scheduled."""
        output = super().sample_tokens(grammar_output)
        if self.lane is not None and self.lane.verified is not None:
            output.verified_drafts = self.lane.verified
        return output

    def sample_exactly(self) -> None:
        """From now on, sample what plain decoding would."""
        for batch in self.batches:
            batch.logitsprocs = logits_processors(self.vllm_config, self.device)
        self.rejection_sampler = DraftSampler(
            self.sampler, lambda: [self.requests[request].output_token_ids for request in self.input_batch.req_ids]
        )

    def _sample(self, *args: Any, **kwargs: Any) -> Any:
        if self.lane is not None:
            index = self.input_batch.req_id_to_index
            self.rejection_sampler.proposals = {index[name]: rows for name, rows in self.lane.proposals.items()}
        return super()._sample(*args, **kwargs)

    def _input_fits_in_drafter(self, *_: Any) -> bool:
        return True  # there is none: without this vLLM prepares zeros near the end of the context, for buffers it lacks


class DrafterRunner(TwoBatchRunner):
    """Runs the draft model on what the verifiers sampled, or on what they verify.

    Attributes:
        admitting: which of the tokens that it drafts are sent.
    """

    lane: DrafterLane | None
    admitting: Admitting

    def load_model(self, load_dummy_weights: bool = False) -> None:
        """Load the draft model."""
        del load_dummy_weights
        self.model = StubTarget(self.model_config.get_hidden_size(), self.dtype, self.device)
        self.drafter = Proposer(self.vllm_config, self.device, self)
        self.drafter.load_model(self.model)

    def admit_by(self, admission: Admission, refresh: Callable[[], None]) -> None:
        """Say which of the tokens that are drafted are sent; see `Admitting`."""
        self.admitting = Admitting(admission, self.num_spec_tokens, refresh)
        self.drafter.notes_chances = admission.needs_chances

    def begin(self, step: Step) -> None:
        """Begin a call; of rows that have ended nothing is remembered."""
        super().begin(step)
        self.admitting.forget(step.finished_req_ids)

    def _update_states(self, scheduler_output: Any) -> Any:
        """Take in a step; of rows that a drafter before this one knew, all tokens come with it."""
        for new in scheduler_output.scheduled_new_reqs:
            new.sampling_params = self._asked(new.sampling_params)
        cached = scheduler_output.scheduled_cached_reqs
        for request, generated in zip(cached.req_ids, cached.num_output_tokens, strict=True):
            if request not in self.requests:
                tokens = cached.all_token_ids[request]
                prompt = len(tokens) - generated
                self.requests[request] = CachedRequestState(
                    req_id=request,
                    prompt_token_ids=tokens[:prompt],
                    mm_features=[],
                    sampling_params=_GREEDY,
                    generator=None,
                    block_ids=([],),
                    num_computed_tokens=0,
                    output_token_ids=tokens[prompt:],
                )
        return super()._update_states(scheduler_output)

    def _asked(self, params: SamplingParams) -> SamplingParams:
        """What of a row's parameters matters to a drafter."""
        if self.speculative_config.draft_sample_method == "greedy" or not has_proposals(params):
            return _GREEDY
        return SamplingParams(temperature=params.temperature)

    def _dummy_sampler_run(self, hidden_states: Tensor) -> Tensor:
        return hidden_states  # the stub has no logits to sample from

    @property
    def _ahead(self) -> bool:
        return way_of(self.step) is Way.AHEAD and self.step.num_spec_tokens_to_schedule > 0

    def _sample(self, *_: Any, **__: Any) -> SamplerOutput:
        """Receive what was sampled; ahead, that is done later, into the same tensor."""
        self.clock.stop(Stage.PREPARE)
        drafts = self.step.scheduled_spec_decode_tokens.values()
        shape = self.input_batch.num_reqs, 1 + max(map(len, drafts), default=0)
        self._sampled = torch.full(shape, REJECTED, dtype=torch.int32)
        if not self._ahead:
            self._receive()
        return SamplerOutput(sampled_token_ids=self._sampled, logprobs_tensors=None)

    def _receive(self) -> None:
        assert self.lane is not None
        received = self.lane.sampled(self.step)
        self._sampled[self.rows()] = received
        if self.admitting.needs_chances:
            self.admitting.verified(self.step.num_scheduled_tokens, self.lane.judged, received)

    def _input_fits_in_drafter(self, *args: Any) -> bool:
        """True: where a row is about to fill the context vLLM would read nothing, and other rows would miss tokens."""
        self.drafter.first_pass_only = not super()._input_fits_in_drafter(*args)
        if self.drafter.first_pass_only:
            self.clock.drafts_nothing()
        return True

    def propose_draft_token_ids(self, *args: Any, **kwargs: Any) -> Tensor:
        """Draft, and send the drafts at once: nobody waits for this rank's bookkeeping."""
        self.clock.start(Stage.DRAFT)
        self.drafter.ahead = self._missing() if self._ahead else None
        drafts: Tensor = super().propose_draft_token_ids(*args, **kwargs)
        self.clock.stop(Stage.DRAFT)
        if self._ahead:
            self._receive()
        if self.step.num_spec_tokens_to_schedule:
            self._send_drafts(drafts)
        return drafts

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Receive, draft, send. The grammar is the verifiers' business."""
        del grammar_output
        output = super().sample_tokens(None)
        self.clock.commit()
        return output

    def _missing(self) -> Tensor:
        """[rows] how many zeros stand for drafts that each row does not have, in the order of this runner's batch."""
        assert self.lane is not None
        missing = self.lane.missing
        return torch.tensor([missing.get(request, 0) for request in self.input_batch.req_ids], dtype=torch.int32)

    def _send_drafts(self, drafts: Tensor) -> None:
        """Send of what was drafted, [rows, drafts] in the order of this runner's batch, what is admitted."""
        rows = self.rows()
        drafts, distributions = drafts[rows], self._draft_probs
        most = np.where(self.discard_request_mask.np[rows.numpy()], 0, drafts.shape[1])
        first = int(self._ahead)  # then the first token is a guess at what was sampled
        if first and drafts.shape[1]:
            placed = self.step.scheduled_spec_decode_tokens
            verified = torch.tensor([len(placed.get(request, ())) for request in self.step.num_scheduled_tokens])
            verified -= self._missing()[rows]
            hits = guessed(self._sampled[rows], verified, drafts[:, 0])
            most = np.where(hits.numpy(), most - 1, 0).clip(0)
        if self.admitting.needs_chances and drafts.shape[1] > first:
            chances = self.drafter.chances[rows, first:]
            most = self.admitting.admit(list(self.step.num_scheduled_tokens), chances, most, way_of(self.step))
        self._send(drafts[:, first:], most, None if distributions is None else distributions[:, first:])

    def _send(self, drafts: Tensor, counts: Counts, distributions: Tensor | None) -> None:
        """Send drafts.

        Args:
            drafts: [requests, drafts] ids, in the order of messages.
            counts: [requests] how many of each one's are sent.
            distributions: [requests, drafts, vocabulary] that they are from, where some were drawn; in the order of
                this runner's batch.
        """
        assert self.lane is not None
        drawn, proposals = self.drawn(), None
        if drawn:
            shape = len(drawn), self.num_spec_tokens, self.model_config.get_vocab_size()
            if distributions is None:
                proposals = torch.full(shape, torch.nan)
            else:
                proposals = torch.zeros(shape)
                proposals[:, : distributions.shape[1]] = distributions[self.rows(drawn)]
        self.lane.drafted(self.step, message(drafts, counts, self.num_spec_tokens), proposals)
