"""vLLM 0.32's V2 model runner (`vllm/v1/worker/gpu/model_runner.py`) as verifier and as drafter: all that knows it.

Every rank keeps the same requests in the same slots, because every rank gets the same `SchedulerOutput`s. A verifier
runs the target model, and its speculator drafts nothing. The drafter runs no target model: it takes what the verifiers
sampled for its own sample, and vLLM's own speculator (`spec_decode/standalone_ar/speculator.py`) drafts from there.

Nothing here waits for the device, and nothing forces eager mode: the verifier's CUDA graphs are vLLM's own.
"""

from typing import Any

import torch
from torch import Tensor
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.sample.output import SamplerOutput
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator
from vllm.v1.worker.workspace import lock_workspace

from worker.minedraft.checks import Unfit
from worker.minedraft.event_clock import Clock
from worker.minedraft.pipeline import DrafterPipeline, VerifierPipeline
from worker.minedraft.sampling_v2 import PlaceSampler
from worker.minedraft.stages import Stage
from worker.minedraft.stub_target import StubTarget

#: What a drafter is told of a row: what is sampled, and what is shown of it, is the verifiers' business.
_GREEDY = SamplingParams(temperature=0)


class RemoteDrafts(BaseSpeculator):  # type: ignore[misc] # vLLM's types are not read
    """A verifier's speculator. It drafts nothing: the drafts of a call arrive two calls later.

    It is no `DraftModelSpeculator`, so vLLM gives it no weights, no KV cache and no CUDA graphs.

    Args:
        most: requests, at most.
        drafts: drafted tokens a request and step.
        device: of the runner.
    """

    draft_logits = None  # drafts are compared with what is sampled, or were the likeliest ones
    supports_mm_inputs = False
    pcp_manager = None

    def __init__(self, most: int, drafts: int, device: torch.device) -> None:
        self._zeros = torch.zeros((most, drafts), dtype=torch.int64, device=device)

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        """Nothing to capture."""

    def capture(self) -> None:
        """Nothing to capture."""

    def propose(self, input_batch: Any, *_: Any, **__: Any) -> Tensor:
        """[requests, drafts] of zeros: what stands in the table until the drafts are there, a guess like any other.

        Made anew: vLLM writes -1 into those that are beyond what a call asks for.
        """
        return self._zeros[: input_batch.num_reqs].zero_()


class PipelineRunner(GPUModelRunner):  # type: ignore[misc] # vLLM's types are not read
    """What verifier and drafter share: a clock, and a pipeline once warm-up is over."""

    clock: Clock
    pp_handler: Any

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Begin a call. Invented ones, of warm-up and profiling, come before there is a pipeline."""
        if self.pp_handler is not None:
            self.pp_handler.begin(scheduler_output, self.req_states.req_id_to_index)
        return super().execute_model(scheduler_output, *args, **kwargs)

    def sample_tokens(self, grammar_output: Any) -> Any:
        """End a call."""
        output = super().sample_tokens(grammar_output)
        if self.pp_handler is not None:
            self.clock.commit()
        return output


class VerifierRunner(PipelineRunner):
    """Runs the target model on drafts that come from elsewhere."""

    pp_handler: VerifierPipeline | None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the target model alone, and sample each place as plain decoding would."""
        # vLLM has made the speculator that drafts; what it holds so far are buffers, its weights would come now.
        self.speculator = RemoteDrafts(self.max_num_reqs, self.num_speculative_steps, self.device)
        super().load_model(*args, **kwargs)
        made: Any = self.rejection_sampler  # type: ignore[has-type]
        if type(made) is not RejectionSampler:
            raise Unfit("two batches do not go with a model that has a sampler of its own")
        self.rejection_sampler = PlaceSampler(self.sampler, self.speculative_config, self.device)

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Sample; what came before in this call was the forward pass."""
        if self.pp_handler is None:
            return super().sample(*args, **kwargs)
        self.clock.stop(Stage.FORWARD)
        self.clock.start(Stage.SAMPLE)
        output = super().sample(*args, **kwargs)
        self.clock.stop(Stage.SAMPLE)
        return output

    def prepare_attn(self, input_batch: Any) -> Any:
        """The last of what is prepared before the forward pass: then the drafts are there."""
        output = super().prepare_attn(input_batch)
        if self.pp_handler is not None:
            if input_batch.num_draft_tokens and input_batch.has_structured_output_reqs:
                # For grammars. From here the copy need not wait for the forward pass.
                drafts = self.req_states.draft_tokens[input_batch.idx_mapping]
                self.draft_tokens_handler.set_draft_tokens(input_batch, drafts)
            self.clock.stop(Stage.PREPARE)
            self.clock.start(Stage.FORWARD)
        return output


class DrafterRunner(PipelineRunner):
    """Runs the draft model on what the verifiers sampled."""

    pp_handler: DrafterPipeline | None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the draft model alone; vLLM measures what it takes, too."""
        kwargs["model"] = StubTarget(self.model_config.get_hidden_size(), self.dtype, self.device)
        super().load_model(*args, **kwargs)

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Begin a call. vLLM's speculator has passes for as many drafts as there can be, and needs one at least."""
        if self.pp_handler is not None:
            self.speculator.num_speculative_steps = max(1, scheduler_output.num_spec_tokens_to_schedule)
        return super().execute_model(scheduler_output, *args, **kwargs)

    def add_requests(self, scheduler_output: Any) -> None:
        """Take in new requests. Logprobs would be asked of the stub, which has none."""
        for new in scheduler_output.scheduled_new_reqs:
            if new.sampling_params is not None:
                new.sampling_params = _GREEDY
        super().add_requests(scheduler_output)

    def sample(self, hidden_states: Tensor, input_batch: Any, grammar_output: Any) -> Any:
        """What the verifiers sampled; before there is a pipeline, something."""
        del grammar_output  # the verifiers' business
        rows = input_batch.num_reqs
        if self.pp_handler is None:
            # As wide as real ones, for kernels are compiled for such.
            ids = torch.zeros((rows, self.num_speculative_steps + 1), dtype=torch.int64, device=self.device)
            ones = torch.ones(rows, dtype=torch.int32, device=self.device)
            num_sampled, num_rejected = ones, torch.zeros_like(ones)
        else:
            ids, num_sampled, num_rejected = self.pp_handler.sampled(rows, self.device)
        output = SamplerOutput(
            sampled_token_ids=ids,
            logprobs_tensors=None,
            num_nans=None,
            num_sampled=num_sampled,
            num_rejected=num_rejected,
        )
        return output, num_sampled, num_rejected

    def _dummy_sampler_run(self, hidden_states: Tensor) -> None:
        """Nothing: the stub has no logits to sample from."""

    @torch.inference_mode()  # type: ignore[untyped-decorator] # torch's types are not read
    def capture_model(self, *, profile_only: bool = False) -> int:
        """Capture what the speculator has to capture; vLLM's own gives up where the target has nothing.

        Returns:
            Bytes that its graphs take on the device.
        """
        before = torch.accelerator.get_memory_info()[0]
        self.speculator.capture()
        taken = int(before - torch.accelerator.get_memory_info()[0])
        if taken and not profile_only:
            lock_workspace()  # graphs hold on to what is in it
        return taken
