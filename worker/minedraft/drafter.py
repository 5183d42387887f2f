"""The rank of the draft model, in a torch.distributed world of its own. Started by `executor.py`."""

from typing import Any

from worker.minedraft import config, names
from worker.minedraft.lanes import DrafterLane
from worker.minedraft.link import Link
from worker.minedraft.rank import LaneWorker
from worker.minedraft.runner_v1 import DrafterRunner
from worker.minedraft.stages import StageClock


class DrafterWorker(LaneWorker):
    """Drafts for one batch while the verifiers check the other."""

    runner_class = DrafterRunner

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        self.name, self.link_rank = names.DRAFTER, config.read().verifiers
        names.call_this_process(self.name)
        super().__init__(vllm_config, *args, **kwargs)

    def determine_available_memory(self) -> int:
        """Memory for the draft model's KV cache: what the user gave it, or as much as a verifier has (bytes)."""
        memory = config.read().drafter_kv_cache_bytes
        if memory is not None:
            # Not earlier: vLLM's CPU platform puts VLLM_CPU_KVCACHE_SPACE there when the proposer makes its own config.
            self.cache_config.kv_cache_memory_bytes = memory
        return super().determine_available_memory()

    def make_lane(self, own_end: Link, clock: StageClock) -> DrafterLane:
        """The drafter's part in the protocol."""
        return DrafterLane(own_end, clock)
