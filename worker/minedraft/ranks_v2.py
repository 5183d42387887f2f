"""The ranks on vLLM's V2 runner, which is its runner for GPUs. Named by `classes.py`; in vLLM's worker processes.

Which link they have is a setting (`config.TwoBatchConfig.link`): NCCL between GPUs, or host memory, for one GPU, for
debugging, and for CPUs in tests.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from vllm.v1.worker.gpu.warmup import warmup_kernels
from vllm.v1.worker.gpu_worker import Worker

from worker.minedraft import config
from worker.minedraft.event_clock import Clock, stage_clock
from worker.minedraft.host_link import HostLink
from worker.minedraft.link import DeviceDrafterEnd, VerifierIds
from worker.minedraft.nccl_link import NcclDrafter, NcclVerifier
from worker.minedraft.pipeline import DrafterPipeline, VerifierPipeline
from worker.minedraft.rank import DrafterRank, Rank, VerifierRank
from worker.minedraft.runner_v2 import DrafterRunner, PipelineRunner, VerifierRunner


class PipelineWorker(Rank, Worker):  # type: ignore[misc] # vLLM's types are not read
    """A rank whose runner has a pipeline."""

    model_runner: PipelineRunner
    lane: VerifierPipeline | DrafterPipeline | None

    def make_clock(self, path: Path) -> Clock:
        """See `Rank`: when its device did what."""
        return stage_clock(path, self.device)

    def connect(self, address: str, within: timedelta | None = None) -> HostLink:
        """See `Rank`: through host memory."""
        return HostLink.connect(
            address, self.link_rank, self.drafts, config.read().deadline, within=within, device=self.device
        )

    def compile_or_warm_up_model(self) -> Any:
        """Warm up, which drives the overridden methods with invented requests; from then on, exchange drafts."""
        result = super().compile_or_warm_up_model()
        if self.device.type == "cuda" and not self.vllm_config.kernel_config.enable_jit_warmup:
            self.warm_up_kernels()
        self.open_lane()
        return result

    def warm_up_kernels(self) -> None:
        """Compile kernels now: in eager mode vLLM leaves that to the first calls, which have a time limit."""
        warmup_kernels(self.model_runner, self.execute_model, self.sample_tokens)

    def open_lane(self) -> None:
        """From now on the runner exchanges drafts."""
        self.model_runner.pp_handler = self.lane


class VerifierWorker(VerifierRank, PipelineWorker):
    """A rank of the target model."""

    lane: VerifierPipeline | None

    def _make_model_runner(self) -> VerifierRunner:
        return VerifierRunner(self.vllm_config, self.device)

    def make_lane(self, address: str, last: int) -> VerifierPipeline:
        """See `Rank`."""
        most = self.model_runner.max_num_reqs
        return VerifierPipeline(self.meet_drafter(address), self.model_runner.clock, self.drafts, most)

    def meet_drafter(self, address: str) -> VerifierIds:
        """This rank's end of the link that the settings name."""
        settings = config.read()
        if settings.link == "nccl":
            return NcclVerifier.connect(address, self.rank, settings.verifiers, self.drafts, self.device)
        return self.meet_all(address)


class DrafterWorker(DrafterRank, PipelineWorker):
    """The rank of the draft model, in a torch.distributed world of its own."""

    lane: DrafterPipeline | None

    def _make_model_runner(self) -> DrafterRunner:
        return DrafterRunner(self.vllm_config, self.device)

    def make_lane(self, address: str, last: int) -> DrafterPipeline:
        """See `Rank`."""
        return DrafterPipeline(self.meet_verifiers(address), self.model_runner.clock, self.drafts, last)

    def meet_verifiers(self, address: str) -> DeviceDrafterEnd:
        """This rank's end of the link that the settings name."""
        settings = config.read()
        if settings.link == "nccl":
            return NcclDrafter.connect(address, settings.verifiers, self.drafts, self.device)
        return self.connect(address)
