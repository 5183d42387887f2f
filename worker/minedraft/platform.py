"""All that differs between CPUs and CUDA in the two-batch engine; today this is the CPU half.

What CUDA has to put in the same places (vLLM 0.32's V2 runner, NCCL) needs a machine with GPUs to be more than a guess;
until then `worker/engine/vllm_args.py` refuses it by name.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vllm.utils.ompmultiprocessing import OMPProcessManager

# The ranks build on vLLM's worker and V1 runner for CPUs, with their faults put right.
from worker.engine.vllm_cpu_worker import CpuRunner as RankRunner
from worker.engine.vllm_cpu_worker import CpuWorker as RankWorker
from worker.environment import environment
from worker.minedraft.link import GlooLink as RankLink

__all__ = ["RankLink", "RankRunner", "RankWorker", "on_devices"]

_BIND = "VLLM_CPU_OMP_THREADS_BIND"


@contextmanager
def on_devices(config: Any, devices: Sequence[int]) -> Iterator[None]:
    """Let the worker process that is started inside the block compute on these cores.

    Args:
        config: that process's `VllmConfig`, for one rank.
        devices: core numbers; none: it is not bound.
    """
    with environment({_BIND: ",".join(map(str, devices)) if devices else "nobind"}):
        # Reads the variable at once, and knows which OpenMP library is loaded.
        manager = OMPProcessManager(config)
        with manager.configure_omp_envs(rank=0, local_rank=0):
            yield
