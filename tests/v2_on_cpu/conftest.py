"""Engines on vLLM's V2 runner, on a CPU, through Triton's interpreter (`shim/`): a step takes a quarter of a second.

`make test` runs this folder by itself, with the environment that the shim needs from a process's first import on.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from integration.worker.minedraft.both_engines import SERVED, Rings, ask, ask_plain, drafted, running
from v2_on_cpu.cases import CASES, FLAGS

from producer.record.models import Answer
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.lab.pairs import build_pair
from worker.minedraft.classes import RANKS_V2, Ranks

#: The product's own, on vLLM's worker for CPUs.
ON_CPU = Ranks("ranks_on_cpu.VerifierWorker", "ranks_on_cpu.DrafterWorker", RANKS_V2.scheduler, "V2")

if "TRITON_INTERPRET" not in os.environ:
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session", params=[1, pytest.param(2, marks=pytest.mark.full)], ids=["TP1", "TP2"])
def options(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of an engine of a tiny pair; `mode` is left to the test."""
    target, draft = map(str, build_pair(tmp_path_factory.mktemp("pair")))
    return {
        "model": target,
        "served_model_name": SERVED,
        "draft_model": draft,
        "tensor_parallel_size": request.param,
        "num_speculative_tokens": 3,
        "max_num_seqs": 8,
        "ranks": ON_CPU,
        "engine_args": FLAGS,
    }


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def plain(options: dict[str, Any]) -> dict[str, list[Answer]]:
    """What plain decoding answers to all cases, on the same runner."""
    async with running(VllmOptions(**options)) as engine:
        return {name: await ask_plain(engine, rows) for name, rows in CASES.items()}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stock(options: dict[str, Any], plain: dict[str, list[Answer]]) -> dict[str, tuple[float, float]]:
    """What vLLM's own speculative decoding makes of the drafts of each case that is sampled greedily."""
    del plain  # which comes first: one engine at a time is in a process
    found = {}
    async with running(VllmOptions(**options, mode="sd")) as engine:
        for name in ("greedy", "long prompts"):
            before = drafted()
            await ask(engine, CASES[name])
            found[name] = drafted(before)
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(options: dict[str, Any], stock: dict[str, tuple[float, float]]) -> AsyncIterator[VllmEngine]:
    """A two-batch engine."""
    del stock  # which comes first
    async with running(VllmOptions(**options, mode="psd")) as two_batches:
        yield two_batches


@pytest.fixture
def rings(engine: VllmEngine) -> Rings:
    """What the ranks record from now on."""
    return Rings(engine)


@pytest.fixture
def folder(engine: VllmEngine) -> Path:
    """The engine's."""
    assert engine._folder is not None
    return Path(engine._folder.name)
