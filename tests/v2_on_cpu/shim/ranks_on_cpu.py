"""The ranks of vLLM's V2 runner on vLLM's worker for CPUs: all of theirs, but for where a runner is made."""

from typing import Any

from communicators_on_cpu import Streams, connected
from vllm.v1.worker.cpu.model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from worker.minedraft import nccl_link, ranks_v2
from worker.minedraft.runner_v2 import DrafterRunner, VerifierRunner


class CpuVerifierRunner(VerifierRunner, CPUModelRunner):
    pass


class CpuDrafterRunner(DrafterRunner, CPUModelRunner):
    pass


class OnCpu(CPUWorker):  # type: ignore[misc] # vLLM's types are not read
    runner_class: type[CPUModelRunner]

    def init_device(self) -> None:
        super().init_device()
        assert type(self.model_runner) is CPUModelRunner, "this is vLLM's V2 runner"
        self.model_runner.__class__ = self.runner_class  # vLLM's worker for CPUs names its runner itself


class VerifierWorker(ranks_v2.VerifierWorker, OnCpu):
    runner_class = CpuVerifierRunner
    model_runner: Any


class DrafterWorker(ranks_v2.DrafterWorker, OnCpu):
    runner_class = CpuDrafterRunner
    model_runner: Any


class OnCommunicators(OnCpu):
    def init_device(self) -> None:
        super().init_device()
        nccl_link._connected, nccl_link.Streams = connected, Streams  # type: ignore[assignment,misc]

    def compile_or_warm_up_model(self) -> Any:
        """As on a GPU: vLLM drives the ranks with invented requests, before they exchange anything."""
        assert self.model_runner.pp_handler is None
        result = super().compile_or_warm_up_model()
        ranks_v2.PipelineWorker.warm_up_kernels(self)  # type: ignore[arg-type]
        return result


class CommunicatingVerifier(VerifierWorker, OnCommunicators):
    pass


class CommunicatingDrafter(DrafterWorker, OnCommunicators):
    pass
