"""A drafter's process, seen from the engine process: how it is started, called, asked and ended.

A rank like vLLM's own (`WorkerProc`, `vllm/v1/executor/multiproc_executor.py`, 0.32.0) with a queue of calls of its
own, in a torch.distributed world of its own.
"""

import copy
import math
import multiprocessing.connection
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from vllm import envs
from vllm.config import CUDAGraphMode
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
from vllm.utils.network_utils import get_file_store_init_method
from vllm.utils.system_utils import get_mp_context
from vllm.v1.executor.multiproc_executor import UnreadyWorkerProcHandle, WorkerProc, WorkerProcHandle

from worker.minedraft import names, platform

#: How often a process that does not answer is looked at (seconds).
_LOOK_S = 0.2
#: How long one that is told to end may take (seconds): a process that is killed leaves shared memory behind.
_GRACE_S = 2.0


class DrafterProcess:
    """One process, from its start on. All calls come from one thread at a time.

    Args:
        own: its `VllmConfig` (`of_one_rank`).
        devices: what it computes on.
        deadline_s: how long its queue of calls may be full (seconds).
    """

    def __init__(self, own: Any, devices: platform.Devices, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        context = get_mp_context()
        self._lock: Any = context.Lock()  # gone from the system as soon as nobody here holds it
        self._calls: Any = MessageQueue(1, 1, max_chunk_bytes=envs.VLLM_MQ_MAX_CHUNK_BYTES_MB * 1024 * 1024)
        with devices.chosen():
            self._starting: UnreadyWorkerProcHandle = WorkerProc.make_worker_process(
                vllm_config=own,
                local_rank=0,
                rank=0,
                distributed_init_method=get_file_store_init_method(),
                input_shm_handle=self._calls.export_handle(),
                shared_worker_lock=self._lock,
                is_driver_worker=True,
                inherited_fds=[] if context.get_start_method() == "fork" else None,
            )
        self.proc: Any = self._starting.proc
        self.handle: WorkerProcHandle | None = None

    def ready(self) -> None:
        """Wait until it has loaded the draft model.

        Raises:
            RankDied: it has ended.
            Exception: it has failed (vLLM's own; what it was, the process has logged).
        """
        try:
            self.handle = WorkerProc.wait_for_ready([self._starting])[0]
        except Exception:
            if multiprocessing.connection.wait([self.proc.sentinel], timeout=names.REAP_S):
                raise names.RankDied(self.ended()) from None
            raise
        self.proc.name = names.DRAFTER
        self._calls.wait_until_ready()
        self.handle.worker_response_mq.wait_until_ready()

    def call(self, method: str | bytes, args: tuple[Any, ...], kwargs: dict[str, Any], *, replies: bool) -> None:
        """Have it do something; one that has ended does nothing.

        Args:
            method: of its worker, or a pickled function.
            args: of the method.
            kwargs: of the method.
            replies: whether `reply` will be called.

        Raises:
            RankDied: it has taken no call for too long.
        """
        deadline = time.monotonic() + self._deadline_s
        waiting = True
        while waiting:
            try:
                self._calls.enqueue((method, args, kwargs, None if replies else -1), timeout=_LOOK_S)
                waiting = False
            except TimeoutError:  # the queue is full, and nobody empties a dead reader's
                waiting = self.alive()
                # Where nothing is drafted nobody else waits for it, so nobody else would notice.
                if waiting and time.monotonic() > deadline:
                    raise names.RankDied(f"{names.DRAFTER} takes no calls") from None

    def reply(self, timeout: float | None = None) -> Any:
        """The reply to the oldest call that has not been replied to.

        Args:
            timeout: how long it may take (seconds); None: as long as the process lives.

        Raises:
            RankDied: it has ended, or does not answer.
            RuntimeError: what was asked failed.
        """
        assert self.handle is not None
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                status, reply = self.handle.worker_response_mq.dequeue(timeout=_LOOK_S)
            except TimeoutError:
                if not self.alive():
                    raise names.RankDied(self.ended()) from None
                if time.monotonic() > deadline:
                    raise names.RankDied(f"{names.DRAFTER} does not answer") from None
                continue
            if status != WorkerProc.ResponseStatus.SUCCESS:
                raise RuntimeError(f"the drafter failed: {reply}")
            return reply

    def alive(self) -> bool:
        """Whether the process is there."""
        return not multiprocessing.connection.wait([self.proc.sentinel], timeout=0)

    def ended(self) -> str:
        """How it ended, in words."""
        self.proc.join(names.REAP_S)
        return names.ended(names.DRAFTER, self.proc.exitcode)

    def end(self) -> None:
        """End it, by force when it takes long, and give back what it shared with this process."""
        for handle in (self._starting, self.handle):
            if handle is not None and handle.death_writer is not None:
                handle.death_writer.close()
                handle.death_writer = None
        self.proc.terminate()
        self.proc.join(_GRACE_S)
        self.proc.kill()
        self.proc.join()
        if self.handle is not None and self.handle.worker_response_mq is not None:
            self.handle.worker_response_mq.shutdown()
            with suppress(FileNotFoundError):  # it was made by the process, which removes it unless it was killed
                self.handle.worker_response_mq.buffer.shared_memory.unlink()
            self.handle.worker_response_mq = None
        self.forget()

    def forget(self) -> None:
        """Give back the shared memory of its calls, and its lock; they go with the last reference."""
        self._lock = None
        if self._calls is not None:
            self._calls.shutdown()
            self._calls = None


def of_one_rank(engine_config: Any, worker_class: str, devices: Sequence[int] = (), memory: float | None = None) -> Any:
    """The engine's configuration as the only rank of a world of one sees it: a copy.

    Args:
        engine_config: a `VllmConfig`.
        worker_class: of that rank.
        devices: what the rank computes on: of a GPU NVML's number; where it is cores, `platform.Devices` binds it.
        memory: the share of its GPU's memory that it may use; None: as much as a rank of the engine.
    """
    own = copy.deepcopy(engine_config)
    spec = own.speculative_config
    for parallel in (own.parallel_config, spec.target_parallel_config, spec.draft_parallel_config):
        parallel.tensor_parallel_size = parallel.world_size = 1
        parallel.rank = 0
    own.parallel_config.worker_cls = worker_class
    if own.use_v2_model_runner:
        _without_others(own.parallel_config)
        _without_graphs(own.compilation_config)
    if own.device_config.device_type == "cuda":
        # Its local rank cannot say it: it has to be below the world's size (`v1/executor/multiproc_executor.py`).
        (gpu,) = devices
        own.parallel_config.assigned_physical_gpu_ids = [gpu]
    if memory is not None:
        own.cache_config.gpu_memory_utilization = memory
    return own


def _without_others(parallel: Any) -> None:
    """Forget the engine's place among other engines, and its GPUs' places in the machine."""
    parallel.data_parallel_size = parallel.data_parallel_size_local = 1
    # These move a rank on by as many GPUs as the engines before it have (`v1/worker/gpu_worker.py`).
    parallel.data_parallel_rank = parallel.data_parallel_rank_local = parallel.data_parallel_index = 0
    # By local rank (`utils/numa_utils.py`): the drafter would be bound to the cores of the first verifier's GPU.
    parallel.numa_bind = False


def _without_graphs(compilation: Any) -> None:
    """Capture no CUDA graphs, as vLLM says it (`config/vllm.py`).

    Its V2 runner has none for a draft model with its own weights (`v1/worker/gpu/spec_decode/standalone_ar`), and the
    target model that a drafter has in name only computes nothing.
    """
    compilation.cudagraph_mode = CUDAGraphMode.NONE
    compilation.max_cudagraph_capture_size = 0
    compilation.cudagraph_capture_sizes = []
