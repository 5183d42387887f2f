from pathlib import Path
from typing import Any

import pytest
from integration.worker.minedraft.both_engines import SERVED
from integration.worker.minedraft.cases import FLAGS

from worker.lab.pairs import build_pair


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and a drafter that it often agrees with."""
    return build_pair(tmp_path_factory.mktemp("pair"))


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
