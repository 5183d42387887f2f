"""The real engine: vLLM behind the `Engine` protocol. Imports vLLM only when it starts.

vLLM's front end (parsing, templates, tokenizing, detokenizing) runs in a thread with a loop of its own, its engine
core and workers in processes of their own; the caller's loop only passes rows to the thread.
"""

import asyncio
import logging
import math
import multiprocessing
import os
import tempfile
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from producer.record.models import Answer, Row
from worker.engine import gpu_placement, platform, vllm_args, vllm_plugin
from worker.engine.loop_thread import LoopStopped, LoopThread
from worker.engine.placement import Placement, place
from worker.engine.protocol import EngineDead, EngineStartError
from worker.engine.vllm_args import VllmOptions
from worker.engine.vllm_failures import start_failure
from worker.environment import environment
from worker.minedraft.config import DEADLINE_S, TwoBatchConfig

if TYPE_CHECKING:
    from worker.engine.vllm_server import VllmServer

__all__ = ["VllmEngine", "VllmOptions"]

_CORE = "EngineCore"  # what vLLM calls the process
_SOCKETS = "VLLM_RPC_BASE_PATH"
_BIND, _NO_BIND = "VLLM_CPU_OMP_THREADS_BIND", "nobind"
_KILL_EVERY_S = 0.2
_STAGES_EVERY_S = 1.0

log = logging.getLogger(__name__)


class StageFollower(Protocol):
    """Whoever reads what the ranks measure (`worker/minedraft/stages.py`)."""

    def follow(self, folder: Path) -> None:
        """The ranks of a new engine leave their rings in `folder`."""
        ...

    def update(self) -> None:
        """Take in the records that are new."""
        ...


class VllmEngine:
    """Implements `Engine`. Made for one at a time in a process: vLLM keeps its metrics and its logging once.

    Args:
        options: how to run vLLM.
        stages: told where the ranks record their stages once they do, and then once a second and at the end that
            there may be new records.
        on_start: told, once vLLM has started, the dtype that it computes in and the Hub's name for the model's state
            ("" for one that is not from there).
    """

    def __init__(
        self,
        options: VllmOptions,
        stages: StageFollower | None = None,
        on_start: Callable[[str, str], None] = lambda _dtype, _revision: None,
    ) -> None:
        self._options = options
        self._stages = stages
        self._on_start = on_start
        self._stage_reader: asyncio.Task[None] | None = None
        self._capacity = options.max_num_seqs
        self._thread: LoopThread | None = None
        self._server: VllmServer | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._others: set[int] = set()  # other engines' cores, which are none of our business

    @property
    def capacity(self) -> int:
        """How many rows vLLM runs at once: `max_num_seqs`, that of `engine_args` once started."""
        return self._capacity

    async def start(self) -> None:
        """Load the model and be ready to answer; takes most of a minute.

        Raises:
            EngineStartError: it cannot start.
            EngineDead: it was killed while starting.
        """
        self._others = _cores()
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=vllm_plugin.FOLDER_PREFIX)
        except OSError as error:
            raise EngineStartError(f"no folder for vLLM's sockets in the temporary directory: {error}") from None
        self._thread = LoopThread("vllm-front-end")
        self._server = await self._thread.run(self._open(self._errors(self._folder)))
        self._capacity = self._server.max_num_seqs
        self._on_start(self._server.dtype, self._server.revision)
        if self._stages is not None:
            self._stages.follow(Path(self._folder.name))
            self._stage_reader = asyncio.create_task(_read_stages(self._stages), name="stage-reader")

    async def answer(self, row: Row, job: str = "") -> Answer:
        """Answer one row, of `job` if that is known; cancelling the call aborts it in vLLM.

        Raises:
            RowError: the row is at fault, or vLLM fails on it.
            EngineDead: the engine died, or was closed.
        """
        thread, server = self._running()
        try:
            return await thread.run(server.answer(row, job))
        except LoopStopped:
            raise EngineDead("the engine was closed before the answer was complete") from None

    async def wait_dead(self) -> str:
        """Return when one of vLLM's processes has died, within a second, with how it ended."""
        thread, server = self._running()
        assert self._folder is not None
        end = await thread.run(server.wait_dead())
        error = vllm_plugin.first_error(self._errors(self._folder))
        return f"{end} ({error})" if error else end

    async def close(self) -> None:
        """End vLLM's processes; those of an engine that is still starting are killed."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        elif self._closing.done():
            return
        await asyncio.shield(self._closing)  # whoever gives up waiting, it is done whole

    async def _close(self) -> None:
        thread, server, folder = self._thread, self._server, self._folder
        self._thread = self._server = self._folder = None
        if folder is None:
            return
        if thread is None:
            folder.cleanup()
            return
        if server is None:
            await _stop_start(thread, spare=self._others)
        else:
            await thread.run(_close(server))
            await thread.stop()
        if self._stage_reader is not None:
            self._stage_reader.cancel()
            await asyncio.wait([self._stage_reader])
            assert self._stages is not None
            self._stages.update()
        vllm_plugin.clean_up(Path(folder.name))
        folder.cleanup()

    def _running(self) -> "tuple[LoopThread, VllmServer]":
        if self._thread is None or self._server is None:
            raise EngineDead("the engine is not running")
        return self._thread, self._server

    async def _open(self, errors: str) -> "VllmServer":
        """All that blocks, in the thread: import vLLM, start its processes, load the model."""
        options, cpu = self._options, platform.is_cpu_build()
        vllm_args.check_mode(options, cpu=cpu)
        ranks = options.ranks_on(cpu=cpu) if options.mode == "psd" else None
        of_runner = platform.runner_variables(os.environ, v2=ranks is not None and ranks.runner == "V2")
        for model in options.models:
            vllm_args.check_model(model)
        platform.set_environment(os.environ, options.models, cpu=cpu)
        of_engine = {
            vllm_plugin.OWNER: str(os.getpid()),
            vllm_plugin.ERRORS: errors,
            _SOCKETS: str(Path(errors).parent),  # vLLM leaves them behind when an engine dies
        }
        try:
            # Not for good: the next engine of this process may be one on another runner, or one that compiles.
            with environment(of_runner):
                from worker.engine.vllm_server import VllmServer  # noqa: PLC0415 - imports vLLM: seconds

                parsed = vllm_args.parse(options, cpu=cpu)
                of_engine |= platform.compiler_variables(os.environ, eager=parsed.enforce_eager, cpu=cpu)
                of_engine |= self._placed(parsed, cpu=cpu)
                with environment(of_engine):
                    server = await VllmServer.open(parsed, two_batches=ranks)
        except EngineStartError:
            raise
        except Exception as error:
            raise start_failure(error, vllm_plugin.first_error(errors)) from error
        vllm_plugin.shorten_errors(os.devnull)  # the front end's own; vLLM has set up its logging only now
        return server

    def _placed(self, parsed: Namespace, *, cpu: bool) -> dict[str, str]:
        """What tells the engine's processes where each rank computes, as environment variables."""
        options, psd = self._options, self._options.mode == "psd"
        if cpu:
            placement = place(
                sorted(os.sched_getaffinity(0)),
                parsed.tensor_parallel_size,
                drafter=psd,
                verifier_cpus=options.verifier_cpus,
                drafter_cpus=options.drafter_cpus,
            )
            told = {_BIND: placement.omp_bind} if _BIND not in os.environ or options.verifier_cpus else {}
            if not options.drafter_cpus and os.environ.get(_BIND) == _NO_BIND:
                placement = replace(placement, drafter=())
        elif psd:
            placement, told = self._on_gpus(parsed), {}
        else:
            return {}
        if psd:
            self._two_batches(placement, cpu=cpu).publish(told)
        return told

    def _on_gpus(self, parsed: Namespace) -> Placement:
        options = self._options
        return gpu_placement.place_engine(
            parsed,
            link=options.link_on(cpu=False),
            drafter_memory=options.drafter_gpu_memory_utilization,
            drafter_cache_given=options.drafter_kv_cache_gib is not None,
        )

    def _two_batches(self, placement: Placement, *, cpu: bool) -> TwoBatchConfig:
        """What the ranks are told; it is logged on what they run."""
        options = self._options
        ranks, link, memory = options.ranks_on(cpu=cpu), options.link_on(cpu=cpu), options.drafter_kv_cache_gib
        gpus = ", ".join(str(gpu) for (gpu,) in placement.verifiers) if not cpu else ""
        where = "on CPUs" if cpu else f"verifiers on GPU {gpus}, drafter on GPU {placement.drafter[0]}"
        log.info("two batches, vLLM's %s model runner, %s, link %s", ranks.runner, where, link)
        assert self._folder is not None
        return TwoBatchConfig(
            folder=self._folder.name,
            verifiers=len(placement.verifiers),
            drafter_devices=placement.drafter,
            drafter_class=ranks.drafter,
            drafter_kv_cache_bytes=None if memory is None else int(memory * 1024**3),
            # vLLM's own deadline for a step ends the engine: a message's, after which rows go on, comes first.
            deadline_s=min(DEADLINE_S, _step_timeout_s() / 3),
            link=link,
            drafter_memory=options.drafter_gpu_memory_utilization,
            strategy=options.strategy,
        )

    @staticmethod
    def _errors(folder: "tempfile.TemporaryDirectory[str]") -> str:
        return str(Path(folder.name, "errors"))


def _step_timeout_s() -> float:
    """How long vLLM lets a step take, where the user says so; else as long as it likes (seconds).

    Raises:
        EngineStartError: it is no time.
    """
    text = os.environ.get(platform.STEP_TIMEOUT, "")
    if text and not (text.isdecimal() and int(text) > 0):
        raise EngineStartError(f"{platform.STEP_TIMEOUT}={text} is no whole number of seconds")
    return int(text) if text else math.inf


async def _read_stages(stages: StageFollower) -> None:
    while True:
        await asyncio.sleep(_STAGES_EVERY_S)
        stages.update()


async def _close(server: "VllmServer") -> None:
    server.close()


async def _stop_start(thread: LoopThread, spare: set[int]) -> None:
    """Stop a thread that may be waiting for vLLM's processes to come up: nothing but their end interrupts it."""
    stopping = asyncio.create_task(thread.stop())
    while not stopping.done():
        for core in _cores() - spare:
            _kill_family(core)
        await asyncio.wait({stopping}, timeout=_KILL_EVERY_S)
    await stopping


def _cores() -> set[int]:
    """The process ids of the engine cores that this process has started."""
    return {child.pid for child in multiprocessing.active_children() if child.name.startswith(_CORE) and child.pid}


def _kill_family(core: int) -> None:
    """Kill an engine core and its workers, which do not yet watch it while they load."""
    import psutil  # type: ignore[import-untyped] # noqa: PLC0415 - comes with vLLM

    try:
        process = psutil.Process(core)
        family = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
