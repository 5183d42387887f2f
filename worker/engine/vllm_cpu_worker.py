"""vLLM's CPU worker with three of its faults put right. Named by `--worker-cls`; runs in vLLM's worker processes.

They are faults of vLLM 0.32.0. The expansion's is looked for each time before it is put right.
"""

import logging
from typing import Any

import torch
from vllm.triton_utils.dispatcher import register_kernels
from vllm.utils.gc_utils import freeze_gc_heap
from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

EXPAND_KERNEL = "vllm.v1.sample.rejection_sampler.expand_kernel"


class CpuRunner(CPUModelRunner):  # type: ignore[misc]
    """vLLM's, which survives seeds, and `top_k` in a step without drafts.

    After each chunk of a prompt but the last vLLM samples a token and discards it. To leave a request's seed as it
    was it moves the generator's offset back, which CUDA generators have and CPU generators answer with
    an error that ends the engine. Here the generator's state is put back instead.
    """

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
        generators = self.input_batch.generators
        unfinished = self.discard_request_mask.np[: self.input_batch.num_reqs].nonzero()[0]
        states = {int(i): generators[int(i)].get_state() for i in unfinished if int(i) in generators}
        if spec_decode_metadata is not None and spec_decode_metadata.max_spec_len == 0:
            # The speculative sampler takes the maximum of `top_k` over all drafts, and ends the engine without any.
            spec_decode_metadata = None
        sampled = super()._sample(logits, spec_decode_metadata)
        for i, state in states.items():
            generators[i].set_state(state)
        return sampled

    def _bookkeeping_sync(self, *args: Any, **kwargs: Any) -> Any:
        generators, self.input_batch.generators = self.input_batch.generators, {}
        try:
            return super()._bookkeeping_sync(*args, **kwargs)
        finally:
            self.input_batch.generators = generators


class CpuWorker(CPUWorker):  # type: ignore[misc] # vLLM's types are not read
    """vLLM's, with a model runner that survives seeds and a speculative sampler that reads temperatures."""

    #: The model runner's class, a subclass of vLLM's V1 `CPUModelRunner` without an `__init__` of its own.
    runner_class: type[CPUModelRunner] = CpuRunner

    def init_device(self) -> None:
        """Make the model runner."""
        super().init_device()
        if type(self.model_runner) is CPUModelRunner:  # it has no place where another class could be named
            self.model_runner.__class__ = self.runner_class
        if self.vllm_config.speculative_config is not None and not expands_rightly():
            logging.getLogger(register_kernels.__module__).setLevel(logging.ERROR)  # "already registered", on purpose
            register_kernels({EXPAND_KERNEL: expand})

    def compile_or_warm_up_model(self) -> Any:
        """Warm up; what is there by then is not looked through for garbage any more, as in vLLM's worker for GPUs."""
        result = super().compile_or_warm_up_model()
        freeze_gc_heap()
        return result


def expands_rightly() -> bool:
    """Whether the kernel in place repeats [0.5, 2.0] as it should."""
    expanded = expand_batch_to_tokens(torch.tensor([0.5, 2.0]), torch.tensor([1, 3], dtype=torch.int32), 3)
    return bool(expanded.tolist() == [0.5, 2.0, 2.0])


def expand(
    output: torch.Tensor,
    source: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int = 0,  # noqa: N803 - vLLM calls it so
) -> None:
    """Write each request's value once for each of its tokens, with `replace_from` replaced.

    vLLM's own writes into an int64 copy of `output` that nobody reads, which leaves temperatures, top-k and top-p
    of the speculative sampler uninitialised.

    Args:
        output: [tokens], written.
        source: [requests], of any type.
        cu_num_tokens: [requests], tokens of all requests up to and including this one.
        replace_from: the value to replace.
        replace_to: what to replace it with.
        MAX_NUM_TOKENS: of no use here.
    """
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = torch.where(source == replace_from, torch.as_tensor(replace_to, dtype=source.dtype), source)
    output.copy_(values.repeat_interleave(counts))
