"""The rank of the draft model, in a torch.distributed world of its own. Started by `executor.py`."""

from typing import Any

import torch

from worker.minedraft import config, names
from worker.minedraft.lanes import DrafterLane
from worker.minedraft.platform import RankLink
from worker.minedraft.rank import LaneWorker, fatal
from worker.minedraft.runner_v1 import DrafterRunner


class DrafterWorker(LaneWorker):
    """Drafts for one batch while the verifiers check the other."""

    runner_class = DrafterRunner
    link_rank = RankLink.DRAFTER

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        self.name = names.DRAFTER
        names.call_this_process(self.name)
        super().__init__(vllm_config, *args, **kwargs)

    def determine_available_memory(self) -> int:
        """Memory for the draft model's KV cache: what the user gave it, or as much as a verifier has (bytes)."""
        memory = config.read().drafter_kv_cache_bytes
        if memory is not None:
            # Not earlier: vLLM's CPU platform puts VLLM_CPU_KVCACHE_SPACE there when the proposer makes its own config.
            self.cache_config.kv_cache_memory_bytes = memory
        return int(super().determine_available_memory())

    def compile_or_warm_up_model(self) -> Any:
        """Warm up; then draw other random numbers than the verifiers, which accept by theirs."""
        result = super().compile_or_warm_up_model()
        torch.manual_seed(self.model_config.seed + 1)  # vLLM's worker has just set all ranks' alike
        return result

    def make_lane(self, address: str, last: int) -> DrafterLane:
        """The drafter's part in the protocol."""
        return DrafterLane(self.connect(address), self.model_runner.clock, last)

    @fatal
    def join(self, address: str, last: int) -> None:
        """Take part in an engine that is at work.

        Args:
            address: where to meet the first verifier.
            last: the number of the call before the first that this rank gets.
        """
        self.lane = self.model_runner.lane = self.make_lane(address, last)
