"""The ranks on vLLM's V1 runner, which is its runner for CPUs. Named by `classes.py`; in vLLM's worker processes."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from worker.minedraft import config
from worker.minedraft.input_batches import InputBatches
from worker.minedraft.lanes import DrafterLane, VerifierLane
from worker.minedraft.pace import Pace
from worker.minedraft.platform import RankLink, RankWorker
from worker.minedraft.rank import DrafterRank, Rank, VerifierRank, fatal
from worker.minedraft.runner_v1 import DrafterRunner, TwoBatchRunner, VerifierRunner, draft_nothing
from worker.strategies import admission


class LaneWorker(Rank, RankWorker):
    """A rank whose runner has a lane."""

    model_runner: TwoBatchRunner
    lane: VerifierLane | DrafterLane | None

    def connect(self, address: str, within: timedelta | None = None) -> RankLink:
        """See `Rank`."""
        return RankLink.connect(address, self.link_rank, self.drafts, config.read().deadline, within)

    def compile_or_warm_up_model(self) -> Any:
        """Warm up, which drives the overridden methods with invented requests; from then on, exchange drafts."""
        result = super().compile_or_warm_up_model()
        self.model_runner.batches = InputBatches(self.model_runner)
        self.open_lane()
        return result

    def open_lane(self) -> None:
        """From now on the runner exchanges drafts."""
        self.model_runner.lane = self.lane

    @fatal
    def execute_model(self, scheduler_output: Any) -> Any:
        """Begin a call: which batch's it is, the drafts that are due, and what vLLM does."""
        self.model_runner.begin(scheduler_output)
        return super().execute_model(scheduler_output)


class VerifierWorker(VerifierRank, LaneWorker):
    """A rank of the target model."""

    runner_class = VerifierRunner
    model_runner: VerifierRunner
    lane: VerifierLane | None

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        draft_nothing(vllm_config)  # this process's own copy
        super().__init__(vllm_config, *args, **kwargs)

    def make_lane(self, address: str, last: int) -> VerifierLane:
        """See `Rank`."""
        vocabulary = self.model_config.get_vocab_size()
        return VerifierLane(
            self.meet_all(address), self.model_runner.clock, sends=self.rank == 0, vocabulary=vocabulary
        )

    def compile_or_warm_up_model(self) -> Any:
        """Warm up, with vLLM's own sampler; from then on, sample exactly."""
        result = super().compile_or_warm_up_model()
        self.model_runner.sample_exactly()
        return result


class DrafterWorker(DrafterRank, LaneWorker):
    """The rank of the draft model, in a torch.distributed world of its own."""

    runner_class = DrafterRunner
    model_runner: DrafterRunner
    lane: DrafterLane | None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the draft model, and the rule by which its drafts are sent."""
        super().load_model(*args, **kwargs)
        settings = config.read()
        pace = Pace(Path(settings.folder))
        self.model_runner.admit_by(admission.make(settings.strategy, self.drafts, pace.costs), pace.refresh)

    def make_lane(self, address: str, last: int) -> DrafterLane:
        """See `Rank`."""
        return DrafterLane(self.connect(address), self.model_runner.clock, last)

    def compile_or_warm_up_model(self) -> Any:
        """Warm up; then draw other random numbers than the verifiers, which accept by theirs."""
        result = super().compile_or_warm_up_model()
        torch.manual_seed(self.model_config.seed + 1)  # vLLM's worker has just set all ranks' alike
        return result
