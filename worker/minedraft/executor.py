"""vLLM's executor with one process more: the drafter. Named by `--distributed-executor-backend`; in the engine process.

The drafter is one more rank: it gets every call that the verifiers get (`vllm/v1/executor/multiproc_executor.py`,
0.32.0). Where every rank replies it replies last; where one rank replies it does not. When it is lost the others go on
(`drafter_keeper.py`); a verifier's death is the engine's.
"""

import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle
from vllm import envs
from vllm.v1.executor.multiproc_executor import MultiprocExecutor, set_multiprocessing_worker_envs

from worker.minedraft import checks, config, names, platform
from worker.minedraft.drafter_keeper import Call, DrafterKeeper
from worker.minedraft.drafter_process import DrafterProcess, of_one_rank
from worker.minedraft.lanes import CallNumbers
from worker.minedraft.presence import Presence, State
from worker.minedraft.shown_drafts import ShownDrafts

#: How often the processes that start are looked at (seconds).
_WATCH_S = 0.1
#: How long vLLM may take to notice a death that this file has noticed (seconds).
_HANG_S = 5.0
#: How long the ranks may take to meet, and to connect, when all of them are up (seconds). NCCL has no limit of its own.
_MEET_S = 120.0

log = logging.getLogger("vllm.minedraft.executor")


class MineDraftExecutor(MultiprocExecutor):  # type: ignore[misc] # vLLM's types are not read
    """Tensor-parallel verifier ranks and one drafter rank."""

    supports_pp = False
    _drafters: DrafterKeeper

    def _init_executor(self) -> None:
        names.call_this_process(names.ENGINE)
        set_multiprocessing_worker_envs(config.read().verifiers + 1)
        self._presence = Presence(config.folder())
        self._shown = ShownDrafts.of_engine(self.vllm_config)
        self._numbers = CallNumbers()
        settings = config.read()
        own = of_one_rank(self.vllm_config, settings.drafter_class, settings.drafter_devices, settings.drafter_memory)
        devices = platform.Devices(own, settings.drafter_devices)
        make = partial(DrafterProcess, own, devices, settings.deadline_s)
        self._drafters = DrafterKeeper(make, self._presence, self._fail)
        first = self._drafters.current
        assert first is not None
        watch = _StartWatch(first.proc)
        try:
            super()._init_executor()
        except Exception as error:
            watch.end()
            self._drafters.end()
            first.end()
            self._drop_queue()
            if watch.died is not None:
                raise names.RankDied(watch.died) from error
            raise
        finally:
            watch.end()
        # Two batches in flight (`VllmConfig.max_concurrent_batches`), which vLLM reads when the executor is up. Workers
        # on the V2 runner have been told so, too; those on the V1 runner were built as synchronous ones.
        self.vllm_config.scheduler_config.async_scheduling = True
        checks.check_engine(self.vllm_config)

    def start_worker_monitor(self, inline: bool = False) -> None:
        """Wait for the drafter, then watch it, and let vLLM watch the verifiers."""
        assert self._drafters.current is not None
        self._drafters.current.ready()
        for rank, worker in enumerate(self.workers):
            worker.proc.name = names.verifier(rank)
        super().start_worker_monitor(inline)
        self._drafters.watch()

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
        drafter = self._drafters.call(Call(call, own_args, kwargs or {}), replies=replies)
        result = super().collective_rpc(
            method, timeout, args, kwargs, non_block, unique_reply_rank, *aggregators, **more
        )
        if not replies or drafter is None:
            return result
        try:
            return [*result, drafter.reply(timeout)]
        except names.RankDied:
            if not self._drafters.serving:
                raise
            self._presence.give_up()  # it was lost while it was asked, or hangs; the others have replied
            return result

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Begin a call, with a drafter that has been waiting for this moment."""
        number = self._numbers.next(scheduler_output)
        if self._presence.state is State.JOINING:
            self._join(number - 1)
        return super().execute_model(scheduler_output, non_block)

    def take_draft_token_ids(self) -> Any:
        """The drafts of the newest call, for grammars: a verifier's, who has them on the V2 runner since it began it.

        On the V1 runner nothing: its forward pass would have to end first, so drafts are shown (`shown_drafts.py`).
        """
        if not self.vllm_config.use_v2_model_runner:
            return None
        # Not of the drafter, which would have to wait for what it is drafting.
        within = envs.VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS
        return super().collective_rpc("take_draft_token_ids", within, (), None, False, self.output_rank)

    def _join(self, last: int) -> None:
        """Let the next drafter take part in all calls after number `last`."""
        if self._drafters.take_next() is None:
            return
        address = config.read().new_address()
        self.collective_rpc("join", args=(address, last), unique_reply_rank=0, non_block=True)
        log.warning("%s takes part again", names.DRAFTER)

    def determine_available_memory(self) -> list[int]:
        """Memory for the KV cache, of each rank, the drafter last (bytes).

        The ranks meet here: it is the first thing that vLLM asks of all of them once every process is up and watched.
        Any earlier, and a rank that fails to start would leave the others waiting for it.
        """
        try:
            self.collective_rpc("meet", _MEET_S, args=(config.read().address,), unique_reply_rank=0)
        except TimeoutError:
            raise names.RankDied(
                f"the ranks did not connect within {_MEET_S:g} s (NCCL_DEBUG=INFO tells more)"
            ) from None
        self._available: list[int] = list(super().determine_available_memory())
        return self._available

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        """Make the KV caches: all ranks share block numbers, so all get as many blocks as the scarcest has room for."""
        checks.check_kv_groups(kv_cache_configs)
        ranks = [*(worker.proc.name for worker in self.workers), names.DRAFTER]
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

    def compile_or_warm_up_model(self) -> None:
        """Warm up, the last thing before rows come."""
        super().compile_or_warm_up_model()
        self._drafters.serve(outlived=config.read().outlives_drafter)

    def shutdown(self) -> None:
        """End all processes; when one has died the others at once, for there is nothing left that they could do."""
        if not getattr(self, "shutting_down", False) and hasattr(self, "workers"):
            drafter = self._drafters.end()
            if drafter is not None and drafter.handle is not None:
                self.workers.append(drafter.handle)
            if self.is_failed:
                self._kill_the_rest()
            self._shown.end()
            super().shutdown()
            if drafter is not None:
                drafter.forget()
        else:
            super().shutdown()
        self._drop_queue()

    def _kill_the_rest(self) -> None:
        ranks = [worker.proc for worker in self.workers]
        dead = multiprocessing.connection.wait([rank.sentinel for rank in ranks], timeout=0)
        for rank in ranks:
            if rank.sentinel in dead:
                rank.join(names.REAP_S)
                # With an exception, so that the worker hears of it (`vllm_plugin.first_error`).
                log.error("a rank died:", exc_info=names.RankDied(names.ended(rank.name, rank.exitcode)))
            else:
                rank.kill()

    def _fail(self, _: str) -> None:
        """The drafter has died, and the engine cannot go on: it was not up yet, or NCCL binds its ranks together."""
        self.is_failed = True
        self.shutdown()
        if callback := getattr(self, "failure_callback", None):
            self.failure_callback = None
            callback()

    def _drop_queue(self) -> None:
        """Give back the shared memory of the calls; it goes with the last reference."""
        if queue := getattr(self, "rpc_broadcast_mq", None):
            queue.shutdown()
            self.rpc_broadcast_mq = None


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
            dead = (names.ended(name, rank.exitcode) for rank, name in ranks.items() if rank.exitcode is not None)
            self.died = next(dead, None)
        if self.died is not None:
            for rank in ranks:
                rank.kill()
            if not self._over.wait(_HANG_S):  # vLLM's queues wait for ever for the greeting of a rank that is gone
                log.error("the start hangs:", exc_info=names.RankDied(self.died))
                logging.shutdown()
                os._exit(1)
