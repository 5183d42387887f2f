"""vLLM's executor with one process more: the drafter. Named by `--distributed-executor-backend`; in the engine process.

The drafter is one more rank: it gets every call that the verifiers get, on a queue of its own, in a torch.distributed
world of its own (`vllm/v1/executor/multiproc_executor.py`, 0.32.0). Where every rank replies it replies last; where one
rank replies it does not.
"""

import copy
import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle
from vllm import envs
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
from vllm.utils.network_utils import get_file_store_init_method
from vllm.utils.system_utils import get_mp_context
from vllm.v1.executor.multiproc_executor import (
    MultiprocExecutor,
    UnreadyWorkerProcHandle,
    WorkerProc,
    set_multiprocessing_worker_envs,
)

from worker.minedraft import checks, config, names, platform

#: How often the processes that start are looked at (seconds).
_WATCH_S = 0.1
#: How long vLLM may take to notice a death that this file has noticed (seconds).
_HANG_S = 5.0
#: A process that dies closes its pipes a moment before the system has its exit code (seconds).
_REAP_S = 1.0

log = logging.getLogger("vllm.minedraft.executor")


class RankDied(Exception):  # noqa: N818 - a state, named as what it says
    """One of the engine's processes ended by itself; the message says which, and how."""


class MineDraftExecutor(MultiprocExecutor):  # type: ignore[misc] # vLLM's types are not read
    """Tensor-parallel verifier ranks and one drafter rank."""

    supports_pp = False

    def _init_executor(self) -> None:
        names.call_this_process(names.ENGINE)
        set_multiprocessing_worker_envs(1)
        self._drafter_calls: Any = MessageQueue(1, 1, max_chunk_bytes=envs.VLLM_MQ_MAX_CHUNK_BYTES_MB * 1024 * 1024)
        self._drafter_replies: MessageQueue | None = None
        self._starting_drafter = self._start_drafter()
        watch = _StartWatch(self._starting_drafter.proc)
        try:
            super()._init_executor()
        except Exception as error:
            watch.end()
            _end(self._starting_drafter)
            self._drop_queues()
            if watch.died is not None:
                raise RankDied(watch.died) from error
            raise
        finally:
            watch.end()
        # Only this process sees it: two batches in flight (`VllmConfig.max_concurrent_batches`), which vLLM reads
        # when the executor is up, while the workers were built as synchronous ones.
        self.vllm_config.scheduler_config.async_scheduling = True
        checks.check_engine(self.vllm_config)

    def start_worker_monitor(self, inline: bool = False) -> None:
        """Wait for the drafter, then watch it together with the verifiers, and end it with them."""
        drafter = WorkerProc.wait_for_ready([self._starting_drafter])[0]
        self._drafter_replies = drafter.worker_response_mq
        self._drafter_calls.wait_until_ready()
        self._drafter_replies.wait_until_ready()
        for rank, worker in enumerate(self.workers):
            worker.proc.name = names.verifier(rank)
        drafter.proc.name = names.DRAFTER
        self.workers.append(drafter)
        super().start_worker_monitor(inline)

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        unique_reply_rank: int | None = None,
        *aggregators: Any,
        drafter_args: tuple[Any, ...] | None = None,
        **more: Any,
    ) -> Any:
        """Call every rank; see `MultiprocExecutor.collective_rpc`.

        Args:
            drafter_args: what the drafter gets in place of `args`.
        """
        if self.is_failed:
            raise RuntimeError("Executor failed.")
        replies = unique_reply_rank is None
        assert not (replies and non_block), "vLLM asks all ranks for a reply only where it waits for it"
        call = method if isinstance(method, str) else cloudpickle.dumps(method, protocol=pickle.HIGHEST_PROTOCOL)
        own_args = args if drafter_args is None else drafter_args
        self._drafter_calls.enqueue((call, own_args, kwargs or {}, None if replies else -1))
        result = super().collective_rpc(
            method, timeout, args, kwargs, non_block, unique_reply_rank, *aggregators, **more
        )
        if not replies:
            return result
        assert self._drafter_replies is not None
        status, reply = self._drafter_replies.dequeue(timeout=timeout)
        if status != WorkerProc.ResponseStatus.SUCCESS:
            raise RuntimeError(f"the drafter failed: {reply}")
        return [*result, reply]

    def determine_available_memory(self) -> list[int]:
        """Memory for the KV cache, of each rank, the drafter last (bytes)."""
        self._available: list[int] = list(super().determine_available_memory())
        return self._available

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        """Make the KV caches: all ranks share block numbers, so all get as many blocks as the scarcest has room for."""
        checks.check_kv_groups(kv_cache_configs)
        ranks = [worker.proc.name for worker in self.workers]
        limits, blocks = checks.scarcest(ranks, self._available, kv_cache_configs)
        got = kv_cache_configs[0].num_blocks
        log.log(
            logging.WARNING if limits == names.DRAFTER else logging.INFO,
            "KV cache: %d blocks, limited by %s (%s)",
            got,
            limits,
            ", ".join(f"{rank} has room for {room}" for rank, room in zip(ranks, blocks, strict=True)),
        )
        self.collective_rpc(
            "initialize_from_config", args=(kv_cache_configs[:-1],), drafter_args=([kv_cache_configs[-1]],)
        )

    def shutdown(self) -> None:
        """End all processes; when one has died the others at once, for there is nothing left that they could do."""
        if getattr(self, "is_failed", False) and not getattr(self, "shutting_down", False):
            ranks = [worker.proc for worker in self.workers]
            dead = multiprocessing.connection.wait([rank.sentinel for rank in ranks], timeout=0)
            for rank in ranks:
                if rank.sentinel in dead:
                    rank.join(_REAP_S)
                    # With an exception, so that the worker hears of it (`vllm_plugin.first_error`).
                    log.error("a rank died:", exc_info=RankDied(_ended(rank.name, rank.exitcode)))
                else:
                    rank.kill()
        super().shutdown()
        self._drop_queues()

    def _drop_queues(self) -> None:
        """Give back the shared memory of the calls; it goes with the last reference."""
        for name in ("_drafter_calls", "rpc_broadcast_mq"):
            if queue := getattr(self, name, None):
                queue.shutdown()
                setattr(self, name, None)

    def _start_drafter(self) -> UnreadyWorkerProcHandle:
        settings = config.read()
        context = get_mp_context()
        self._drafter_lock = context.Lock()  # gone from the system as soon as nobody here holds it
        own = self._drafter_config(settings.drafter_class)
        with platform.on_devices(own, settings.drafter_devices):
            return WorkerProc.make_worker_process(
                vllm_config=own,
                local_rank=0,
                rank=0,
                distributed_init_method=get_file_store_init_method(),
                input_shm_handle=self._drafter_calls.export_handle(),
                shared_worker_lock=self._drafter_lock,
                is_driver_worker=True,
                inherited_fds=[] if context.get_start_method() == "fork" else None,
            )

    def _drafter_config(self, worker_class: str) -> Any:
        """The engine's configuration as the only rank of a world of one sees it."""
        own = copy.deepcopy(self.vllm_config)
        spec = own.speculative_config
        for parallel in (own.parallel_config, spec.target_parallel_config, spec.draft_parallel_config):
            parallel.tensor_parallel_size = parallel.world_size = 1
            parallel.rank = 0
        own.parallel_config.worker_cls = worker_class
        return own


class _StartWatch:
    """Kills the ranks that are still starting when one dies; vLLM would wait for the verifiers first, and long."""

    def __init__(self, drafter: BaseProcess) -> None:
        self.died: str | None = None
        self._drafter = drafter
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="start-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The start is over; look once more, for vLLM may have noticed a death first."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        ranks = {self._drafter: names.DRAFTER}
        over = False
        while self.died is None and not over:
            over = self._over.wait(_WATCH_S)
            for rank in multiprocessing.active_children():  # the verifiers, as vLLM starts them
                if rank not in ranks:
                    ranks[rank] = names.verifier(int(rank.name.rpartition("-")[2]))
            dead = (_ended(name, rank.exitcode) for rank, name in ranks.items() if rank.exitcode is not None)
            self.died = next(dead, None)
        if self.died is not None:
            for rank in ranks:
                rank.kill()
            if not self._over.wait(_HANG_S):  # vLLM's queues wait for ever for the greeting of a rank that is gone
                log.error("the start hangs:", exc_info=RankDied(self.died))
                logging.shutdown()
                os._exit(1)


def _ended(name: str, code: int | None) -> str:
    return f"{name} was killed by signal {-code}" if code and code < 0 else f"{name} ended with exit code {code}"


def _end(handle: UnreadyWorkerProcHandle) -> None:
    """End a drafter that is still starting."""
    if handle.death_writer is not None:
        handle.death_writer.close()
        handle.death_writer = None
    handle.proc.kill()
    handle.proc.join()
