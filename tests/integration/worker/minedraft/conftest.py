from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from integration.worker.minedraft.both_engines import SERVED, Rings, ask_plain, running
from integration.worker.minedraft.cases import FLAGS
from integration.worker.minedraft.imagined_engine import config_of

from producer.record.models import Answer
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.lab.pairs import build_pair


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and a drafter that it often agrees with."""
    return build_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def config(tiny_pair: tuple[Path, Path]) -> Any:
    """A `VllmConfig` of that pair, for an engine without models."""
    return config_of(tiny_pair)


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.full)], ids=["TP1", "TP2"])
def options(request: pytest.FixtureRequest, tiny_pair: tuple[Path, Path]) -> dict[str, Any]:
    """Of an engine of that pair; `mode` is left to the test."""
    target, draft = map(str, tiny_pair)
    return {
        "model": target,
        "served_model_name": SERVED,
        "draft_model": draft,
        "tensor_parallel_size": request.param,
        "num_speculative_tokens": 3,
        "max_num_seqs": 8,
        "engine_args": FLAGS,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(request: pytest.FixtureRequest, options: dict[str, Any]) -> dict[str, list[Answer]]:
    """What plain decoding answers to a module's `CASES`: all of it first, for one engine at a time is in a process."""
    async with running(VllmOptions(**options)) as engine:
        return {name: await ask_plain(engine, case.rows) for name, case in request.module.CASES.items()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(options: dict[str, Any], plain: dict[str, list[Answer]]) -> AsyncIterator[VllmEngine]:
    """A two-batch engine."""
    del plain  # which comes first
    async with running(VllmOptions(**options, mode="psd")) as two_batches:
        yield two_batches


@pytest.fixture
def rings(engine: VllmEngine) -> Rings:
    """What the ranks record from now on."""
    return Rings(engine)
