"""A persistent batch of vLLM's V1 runner for each of the two batches.

vLLM keeps the rows of a step's requests for the next step (`InputBatch`, `vllm/v1/worker/gpu_input_batch.py`), and says
of its own bookkeeping: where two sets of requests alternate it "becomes very inefficient". Every row is removed and
made anew in every step. With a persistent batch for each set, rows stay.
"""

from collections.abc import Iterator
from typing import Any

from vllm.v1.worker.gpu_input_batch import InputBatch

from worker.minedraft.lanes import Step


class InputBatches:
    """One for calls with even numbers, one for the others (`lanes.CallNumbers`).

    Args:
        runner: a V1 model runner whose warm-up is over; its own persistent batch becomes one of the two.
    """

    def __init__(self, runner: Any) -> None:
        self._batches = (runner.input_batch, _another(runner))
        self._home: dict[str, int] = {}  # which of the two has seen all steps of a request

    def __iter__(self) -> Iterator[Any]:
        """Both."""
        return iter(self._batches)

    def of_call(self, call: int, step: Step) -> Any:
        """The persistent batch for a call: what a request's row in it missed is made good by a new row.

        A request changes batches when it is held, and reads its prompt in both; vLLM itself removes rows of requests
        that are not in the step, so those that have ended, too.
        """
        turn = call % 2
        batch = self._batches[turn]
        for request in step.finished_req_ids:
            self._home.pop(request, None)
        for request in step.num_scheduled_tokens:
            if self._home.get(request) != turn:
                self._home[request] = turn
                batch.remove_request(request)
        return batch


def _another(runner: Any) -> InputBatch:
    """A second one like the runner's (`GPUModelRunner.may_reinitialize_input_batch`), without logits processors."""
    one = runner.input_batch
    return InputBatch(
        max_num_reqs=one.max_num_reqs,
        max_model_len=one.max_model_len,
        max_num_batched_tokens=one.max_num_batched_tokens,
        device=one.device,
        vocab_size=one.vocab_size,
        block_sizes=runner._init_block_sizes,
        max_num_blocks_per_req=runner._init_max_num_blocks,
        slot_mapping_modes=runner._init_slot_mapping_modes,
        num_spec_tokens=runner.num_spec_tokens,
        logitsprocs_need_output_token_ids=one.logitsprocs_need_output_token_ids,
        is_pooling_model=one.is_pooling_model,
        cp_kv_cache_interleave_size=runner.cp_kv_cache_interleave_size,
        reasoning_config=runner.vllm_config.reasoning_config,
        use_replayssm=one.use_replayssm,
    )
