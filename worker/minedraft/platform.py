"""All that differs between CPUs and CUDA in the two-batch engine; today this is the CPU half.

What CUDA has to put in the same places (vLLM 0.32's V2 runner, NCCL) needs a machine with GPUs to be more than a guess;
until then `worker/engine/vllm_args.py` refuses it by name.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vllm.utils.ompmultiprocessing import OMPProcessManager

# The ranks build on vLLM's worker and V1 runner for CPUs, with their faults put right.
from worker.engine.vllm_cpu_worker import CpuRunner as RankRunner
from worker.engine.vllm_cpu_worker import CpuWorker as RankWorker
from worker.environment import environment
from worker.minedraft.link import GlooLink as RankLink

__all__ = ["Devices", "RankLink", "RankRunner", "RankWorker"]

_BIND = "VLLM_CPU_OMP_THREADS_BIND"


class Devices:
    """The cores that a worker process computes on.

    Made before the engine is up: then vLLM's environment variables are read for the last time.

    Args:
        config: the process's `VllmConfig`, for one rank.
        devices: core numbers; none: it is not bound.
    """

    def __init__(self, config: Any, devices: Sequence[int]) -> None:
        self._devices = devices
        self._variables = {_BIND: ",".join(map(str, devices)) if devices else "nobind"}
        with environment(self._variables):
            self._manager = OMPProcessManager(config)  # knows which OpenMP library is loaded

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Let the worker process that is started inside the block, in this thread, compute there.

        All of it, from its first import on: a drafter that takes the place of another one starts while rows go on.
        """
        before = os.sched_getaffinity(0)
        with environment(self._variables), self._manager.configure_omp_envs(rank=0, local_rank=0):
            os.sched_setaffinity(0, self._devices or before)
            try:
                yield
            finally:
                os.sched_setaffinity(0, before)
