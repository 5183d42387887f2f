"""What differs between CPUs and CUDA where the two-batch engine starts its processes, and vLLM's ranks for CPUs.

A core is chosen for a process from outside. A GPU is not: it is in the process's own configuration (`of_one_rank`).
The ranks for CUDA, on vLLM's V2 runner, are `ranks_v2.py`'s.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from vllm.platforms import current_platform
from vllm.utils.ompmultiprocessing import OMPProcessManager

from worker.environment import environment
from worker.minedraft.link import GlooLink as RankLink

CPU: bool = current_platform.is_cpu()

if TYPE_CHECKING or CPU:  # vLLM's other builds lack what its workers for CPUs need
    # The ranks build on vLLM's worker and V1 runner for CPUs, with their faults put right.
    from worker.engine.vllm_cpu_worker import CpuRunner as RankRunner
    from worker.engine.vllm_cpu_worker import CpuWorker as RankWorker

__all__ = ["Devices", "RankLink", "RankRunner", "RankWorker"]

_BIND = "VLLM_CPU_OMP_THREADS_BIND"


class Devices:
    """What a worker process computes on, for the process that starts it.

    Made before the engine is up: then vLLM's environment variables are read for the last time.

    Args:
        config: the process's `VllmConfig`, for one rank.
        devices: core numbers; none: it is not bound. GPUs are in `config`.
        cpu: whether they are cores.
    """

    def __init__(self, config: Any, devices: Sequence[int], *, cpu: bool = CPU) -> None:
        self._cores = _Cores(config, devices) if cpu else None

    def chosen(self) -> AbstractContextManager[None]:
        """Let the worker process that is started inside the block, in this thread, compute there."""
        return nullcontext() if self._cores is None else self._cores.chosen()


class _Cores:
    """The cores of a process; see `Devices`."""

    def __init__(self, config: Any, devices: Sequence[int]) -> None:
        self._devices = devices
        self._variables = {_BIND: ",".join(map(str, devices)) if devices else "nobind"}
        with environment(self._variables):
            self._manager = OMPProcessManager(config)  # knows which OpenMP library is loaded

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """All of it, from its first import on: the next drafter starts while rows go on."""
        before = os.sched_getaffinity(0)
        with environment(self._variables), self._manager.configure_omp_envs(rank=0, local_rank=0):
            os.sched_setaffinity(0, self._devices or before)
            try:
                yield
            finally:
                os.sched_setaffinity(0, before)
