"""Draft models that do not fit are refused by name, before any process is started."""

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from worker.engine.protocol import EngineStartError
from worker.engine.vllm import VllmEngine, VllmOptions


def change(file: Path, edit: Callable[[Any], None]) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    edit(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def two_tokens_swapped(draft: Path) -> None:
    def swap(tokenizer: Any) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        one, other = list(vocabulary)[-2:]
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]

    change(draft / "tokenizer.json", swap)


def a_context_of_256(draft: Path) -> None:
    change(draft / "config.json", lambda config: config.update(max_position_embeddings=256))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (two_tokens_swapped, "the draft model {draft} has another tokenizer than the target {target}"),
        (a_context_of_256, "the draft model {draft} reads 256 tokens, the target 2,048"),
    ],
)
async def test_a_draft_model_that_does_not_fit(
    spoil: Callable[[Path], None], words: str, tiny_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    target, draft = tiny_pair[0], shutil.copytree(tiny_pair[1], tmp_path / "draft")
    spoil(draft)
    there, environment = multiprocessing.active_children(), set(os.environ)
    engine = VllmEngine(VllmOptions(str(target), "pair", "psd", str(draft)))
    try:
        with pytest.raises(EngineStartError) as refused:
            await engine.start()
        assert multiprocessing.active_children() == there
    finally:
        await engine.close()
    # Beside defaults, nothing is left that would mislead the vLLM of somebody else.
    left = set(os.environ) - environment
    assert not left & {"VLLM_RPC_BASE_PATH", "VLLM_CPU_OMP_THREADS_BIND"}
    assert not any(name.startswith("MINEDRAFT_") for name in left)
    said = str(refused.value)
    assert said.startswith(f"mode psd: {words.format(target=target, draft=draft)}")
    assert "\n" not in said
