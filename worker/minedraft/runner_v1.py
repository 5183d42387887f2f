"""vLLM 0.32's V1 model runner (`vllm/v1/worker/gpu_model_runner.py`) as verifier and as drafter: all that knows it.

Every rank keeps the same requests and block tables, because every rank gets the same `SchedulerOutput`s. A verifier
runs the target model and never drafts. The drafter runs no target model: it takes what the verifier sampled for its own
sample, and vLLM's own proposer (`vllm/v1/spec_decode/draft_model.py`) drafts from there.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import SamplerOutput
from vllm.v1.worker.gpu_input_batch import CachedRequestState

from worker.minedraft.input_batches import InputBatches
from worker.minedraft.lanes import DrafterLane, Step, VerifierLane
from worker.minedraft.platform import RankRunner
from worker.minedraft.sampling import DraftSampler, has_proposals, logits_processors
from worker.minedraft.shown_drafts import ShownDrafts
from worker.minedraft.stages import Stage, StageClock
from worker.minedraft.stub_target import StubTarget

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
    """Runs the draft model on what the verifiers sampled."""

    lane: DrafterLane | None

    def load_model(self, load_dummy_weights: bool = False) -> None:
        """Load the draft model."""
        del load_dummy_weights
        self.model = StubTarget(self.model_config.get_hidden_size(), self.dtype, self.device)
        self.drafter.load_model(self.model)

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

    def _sample(self, *_: Any, **__: Any) -> SamplerOutput:
        self.clock.stop(Stage.PREPARE)
        assert self.lane is not None
        received = self.lane.sampled(self.step)
        sampled = torch.empty_like(received)
        sampled[self.rows()] = received
        return SamplerOutput(sampled_token_ids=sampled, logprobs_tensors=None)

    def propose_draft_token_ids(self, *args: Any, **kwargs: Any) -> Tensor:
        """Draft, and send the drafts at once: nobody waits for this rank's bookkeeping."""
        assert self.lane is not None
        self.clock.start(Stage.DRAFT)
        drafts: Tensor = super().propose_draft_token_ids(*args, **kwargs)
        self.clock.stop(Stage.DRAFT)
        self._send(drafts, self._draft_probs)
        return drafts

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Receive, draft, send. The grammar is the verifiers' business."""
        del grammar_output
        self._sent = False
        output = super().sample_tokens(None)
        if not self._sent:  # vLLM does not draft when a request is about to fill the context; zeros are drafts, too
            self._send(torch.zeros(self.input_batch.num_reqs, self.num_spec_tokens, dtype=torch.int32), None)
        self.clock.commit()
        return output

    def _send(self, drafts: Tensor, distributions: Tensor | None) -> None:
        """Send what was drafted.

        Args:
            drafts: [requests, drafts] ids, in the order of this runner's batch.
            distributions: [requests, drafts, vocabulary] that they are from, where some were drawn.
        """
        assert self.lane is not None
        drawn, proposals = self.drawn(), None
        if drawn:
            if distributions is None:
                distributions = torch.full((*drafts.shape, self.model_config.get_vocab_size()), torch.nan)
            proposals = distributions[self.rows(drawn)]
        self.lane.drafted(self.step, drafts[self.rows()], proposals)
        self._sent = True
