"""The parts of tier B: the product's engine on GPUs, each in a process of its own with one engine after the other."""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from multiprocessing import resource_tracker

from gpu import overlap
from gpu.compare import TIE, Comparison, Plain, compare
from gpu.engines import IN_CHUNKS, ROWS, many, memory_back, memory_used, models, options, plain, tokens_of
from gpu.order import describe
from gpu.parts import Checks
from integration.worker.minedraft.both_engines import Rings, counted, ranks, running
from integration.worker.minedraft.cases import GENERATED, PREEMPTED
from leftovers import MARK, Leftovers

from worker.engine.protocol import EngineDead
from worker.engine.vllm import VllmEngine
from worker.engine.vllm_args import VllmOptions
from worker.minedraft.measures import summary
from worker.minedraft.names import DRAFTER

EAGER = "--enforce-eager"
#: CUDA graphs of few sizes: capturing all takes minutes.
GRAPHS = "--max-cudagraph-capture-size 160"
#: The synthetic pair's drafts are accepted more often than this; late ones, or those of another row, are not.
LEAST_ACCEPTED = 0.4
#: vLLM's counters of its own speculative decoding.
DRAFTED, ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"
BATCH, LONG = 32, 256
#: The engine is to end so soon after its drafter (seconds).
DEAD_WITHIN_S = 5.0
GONE_WITHIN_S, SLACK_MIB = 20.0, 300


def machine(checks: Checks, run: argparse.Namespace) -> None:
    """Fail fast."""
    from vllm.distributed.device_communicators.pynccl_wrapper import NCCLLibrary

    run_on = options(run, "psd", "float32", EAGER).ranks_on(cpu=False).runner
    checks.report("vLLM", metadata.version("vllm"), why="the hooks are those of one version")
    checks.judge("runner of mode psd", run_on, "V2", ok=run_on == "V2", why="the only one that is made for GPUs")
    checks.report("NCCL that vLLM loads", NCCLLibrary().ncclGetVersion(), why="both ends must have the same")
    plugins = [point.name for point in metadata.entry_points(group="vllm.general_plugins")]
    why = "it ends vLLM's processes with ours, and says why one failed: pip install this project"
    checks.judge("this project's plugin of vLLM", plugins, "minedraft", ok="minedraft" in plugins, why=why)
    checks.report("models", " and ".join(models(run)), why="made here unless named")
    checks.report("memory in use before", f"{memory_used()} MiB", why="other users of a GPU spoil what is measured")


def sd(checks: Checks, run: argparse.Namespace) -> None:
    """vLLM's own speculative decoding says what plain decoding says: what is compared below can be."""
    expected = plain(run, "float32")["short"]

    async def asked() -> tuple[Comparison, float]:
        async with running(options(run, "sd", "float32", EAGER)) as engine:
            found = compare(expected, await tokens_of(engine, ROWS["short"]), TIE["float32"])
            return found, counted(ACCEPTED) / counted(DRAFTED)

    found, accepted = asyncio.run(asked())
    _judge_texts(checks, "vLLM's own speculative decoding, float32, eager", found)
    checks.report("its drafts that were accepted", f"{accepted:.2f}", why="two batches should accept as many")


def psd(checks: Checks, run: argparse.Namespace) -> None:
    expected = plain(run, "float32")

    async def asked() -> None:
        async with running(options(run, "psd", "float32", EAGER)) as engine:
            rings = Rings(engine)
            _judge_texts(
                checks,
                "two batches, float32, eager",
                compare(expected["short"], await tokens_of(engine, ROWS["short"]), TIE["float32"]),
            )
            accepted = summary(*rings.read()).acceptance or 0.0
            checks.judge(
                "drafts that were accepted",
                f"{accepted:.2f}",
                f"above {LEAST_ACCEPTED:g}",
                ok=accepted > LEAST_ACCEPTED or bool(run.model),
                why="late drafts, or another row's, would change no text",
            )
            kept, found = await _with_aborts(engine, expected["short"])
            _judge_texts(checks, f"{kept} rows whose neighbours were aborted", found)

    with _nothing_is_left(checks, run, "after it was closed"):
        asyncio.run(asked())


def graphs(checks: Checks, run: argparse.Namespace) -> None:
    """CUDA graphs, prompts in chunks, and so little room that rows are preempted."""
    expected = plain(run, "float32")

    async def asked() -> None:
        async with running(options(run, "psd", "float32", f"{GRAPHS} {IN_CHUNKS}")) as engine:
            preempted = -counted(PREEMPTED)
            for name, rows in ROWS.items():
                found = compare(expected[name], await tokens_of(engine, rows), TIE["float32"])
                _judge_texts(checks, f"two batches, float32, CUDA graphs, {name} prompts", found)
            preempted += counted(PREEMPTED)
            why = "its drafts that were under way must not be verified"
            checks.judge("rows preempted", f"{preempted:g}", "1 or more", ok=preempted > 0, why=why)

    asyncio.run(asked())


def overlapping(checks: Checks, run: argparse.Namespace) -> None:
    rows = many(2 * BATCH, LONG)

    async def asked() -> overlap.Overlap:
        async with running(options(run, "psd", "bfloat16", GRAPHS, rows=2 * BATCH)) as engine:
            await tokens_of(engine, many(2 * BATCH, 8))  # meets what happens only once
            rings = Rings(engine)
            await tokens_of(engine, rows)
            return overlap.overlap_of(*rings.read())

    found = asyncio.run(asked())
    checks.report(f"{BATCH} rows a batch, {LONG} tokens, bfloat16", describe(found.found), why="to explain the rest")
    overlap.judge(checks, found, alone=run.gpus > run.tensor_parallel_size)


def death(checks: Checks, run: argparse.Namespace) -> None:
    """kill -9 of the drafter, and what is left afterwards."""
    with _nothing_is_left(checks, run, "after it was killed"):
        asyncio.run(_killed(checks, options(run, "psd", "float32", EAGER), len(ROWS["short"])))


def bf16(checks: Checks, run: argparse.Namespace) -> None:
    expected = plain(run, "bfloat16")

    async def asked() -> Comparison:
        async with running(options(run, "psd", "bfloat16", EAGER)) as engine:
            return compare(expected["short"], await tokens_of(engine, ROWS["short"]), TIE["bfloat16"])

    _judge_texts(checks, "two batches, bfloat16, eager", asyncio.run(asked()))


@contextlib.contextmanager
def _nothing_is_left(checks: Checks, run: argparse.Namespace, when: str) -> Iterator[None]:
    """Judge what is left of an engine that was started, and ended, inside the block."""
    resource_tracker.ensure_running()  # this process's own, which stays
    os.environ[MARK] = secrets.token_hex(8)
    folder = run.folder / "nowhere"
    folder.mkdir()
    before, left = memory_used(), Leftovers(os.environ[MARK], folder, folder)
    with left.followed():
        yield
    # A process that is killed leaves a lock; this process's tracker of resources removes it at its end.
    gone = [what for what in left.await_gone(GONE_WITHIN_S) if "shared memory sem." not in what]
    why = "a worker starts its next engine here"
    checks.judge(f"left {when}", gone or "nothing", "nothing", ok=not gone, why=why)
    more = memory_back(before, SLACK_MIB, GONE_WITHIN_S)
    checks.judge(f"memory not back {when}", f"{more} MiB", f"{SLACK_MIB} MiB", ok=more <= SLACK_MIB, why=why)


def _judge_texts(checks: Checks, what: str, found: Comparison) -> None:
    why = "speculation must not change what a row says"
    checks.judge(what, found, "none others", ok=not found.others, why=why)


async def _with_aborts(engine: VllmEngine, expected: Sequence[Plain]) -> tuple[int, Comparison]:
    """Every third row is aborted while the others run: how many were kept, and what they say."""
    calls = [asyncio.create_task(tokens_of(engine, [row])) for row in ROWS["short"]]
    await _progress(10)
    for call in calls[::3]:
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    for failed in (it for it in ended if isinstance(it, Exception)):
        raise failed
    kept = [row for row, answer in enumerate(ended) if not isinstance(answer, BaseException)]
    return len(kept), compare([expected[row] for row in kept], [ended[row][0] for row in kept], TIE["float32"])


async def _progress(tokens: int) -> None:
    before = counted(GENERATED)
    async with asyncio.timeout(30):
        while counted(GENERATED) < before + tokens:
            await asyncio.sleep(0.005)


async def _killed(checks: Checks, of_engine: VllmOptions, count: int) -> None:
    async with running(of_engine) as engine:
        rows = asyncio.create_task(tokens_of(engine, many(count, LONG)))
        await _progress(100)
        killed = time.monotonic()
        ranks()[DRAFTER].send_signal(signal.SIGKILL)
        if of_engine.link == "host":
            done = await asyncio.wait_for(rows, 60)
            checks.judge(
                "rows after the drafter was killed",
                f"{len(done)} answered",
                f"{count}",
                ok=len(done) == count,
                why="through the host's memory rows go on without drafts",
            )
            return
        said = "nobody noticed"
        with contextlib.suppress(TimeoutError):
            said = await asyncio.wait_for(engine.wait_dead(), 4 * DEAD_WITHIN_S)
        took = time.monotonic() - killed
        checks.judge(
            "the engine's end after the drafter's",
            f"{took:.1f} s: {said}",
            f"{DEAD_WITHIN_S:g} s",
            ok=took < DEAD_WITHIN_S,
            why="kernels that wait for it wait for ever",
        )
        try:
            await asyncio.wait_for(rows, DEAD_WITHIN_S)
            failed = "they were answered"
        except (EngineDead, TimeoutError) as error:
            failed = type(error).__name__
        what = "rows that were under way"
        checks.judge(what, failed, "EngineDead", ok=failed == "EngineDead", why="the worker gives them to the next one")
