"""A rank of the target model. Named by `--worker-cls`; runs in vLLM's worker processes."""

from typing import Any

from worker.minedraft import names
from worker.minedraft.lanes import VerifierLane
from worker.minedraft.link import Link
from worker.minedraft.rank import LaneWorker
from worker.minedraft.runner_v1 import VerifierRunner, draft_nothing
from worker.minedraft.stages import StageClock


class VerifierWorker(LaneWorker):
    """Checks what the drafter drafted; rank 0 tells it what came of that."""

    runner_class = VerifierRunner

    def __init__(self, vllm_config: Any, local_rank: int, rank: int, *args: Any, **kwargs: Any) -> None:
        self.name, self.link_rank = names.verifier(rank), rank
        names.call_this_process(self.name)
        draft_nothing(vllm_config)  # this process's own copy
        super().__init__(vllm_config, local_rank, rank, *args, **kwargs)

    def make_lane(self, own_end: Link, clock: StageClock) -> VerifierLane:
        """The verifiers' part in the protocol."""
        return VerifierLane(own_end, clock, sends=self.rank == 0)
