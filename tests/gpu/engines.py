"""The product's engines on GPUs, and rows for them, as the parts of tier B want them."""

import argparse
import asyncio
import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from gpu.compare import Plain, plain_of
from integration.worker.engine.real_engine import completion
from integration.worker.minedraft.both_engines import SERVED, ask, ask_plain, choices, running
from integration.worker.minedraft.cases import GREEDY, english

from producer.record.models import Row
from worker.engine.vllm import VllmEngine
from worker.engine.vllm_args import VllmOptions
from worker.lab.pairs import HEAVY, build_pair

DRAFTS = 4
#: KV caches of ranks that share a GPU (GiB): there nothing can be measured.
SHARED_CACHE_GIB = 2.0
TOKENS = 64
CONTEXT = 1024

#: Few tokens a call, so that prompts are read in chunks; few blocks, so that rows are preempted.
IN_CHUNKS = "--max-num-batched-tokens 256 --block-size 16 --num-gpu-blocks-override 200"

Dtype = Literal["float32", "bfloat16"]


def _row(start: int, length: int, tokens: int = TOKENS) -> Row:
    return completion(english(start, length), max_tokens=tokens, **GREEDY)


#: What engines are asked that are to say the same. Long prompts are longer than the budget of `IN_CHUNKS`.
ROWS = {
    "short": [_row(97 * row, 60 + 20 * row) for row in range(16)],
    "long": [_row(150 * row, 1200) for row in range(16)],
}


def many(rows: int, tokens: int) -> list[Row]:
    """Rows that decode for long, all alike in length."""
    return [_row(60 * row, 200, tokens) for row in range(rows)]


def models(run: argparse.Namespace) -> tuple[str, str]:
    """The target and the draft model: the user's, or a synthetic pair, made once a run."""
    if run.model:
        return run.model, run.draft_model
    folder = run.folder / "pair"
    if not (folder / "done").exists():
        build_pair(folder, shape=HEAVY)
        (folder / "done").touch()
    return str(folder / "target"), str(folder / "draft")


def options(
    run: argparse.Namespace, mode: Literal["ar", "sd", "psd"], dtype: Dtype, flags: str, *, rows: int = 16
) -> VllmOptions:
    """Of an engine.

    Args:
        run: the tier's options.
        mode: of the engine.
        dtype: of both models.
        flags: more of vLLM's.
        rows: in flight.
    """
    target, draft = models(run)
    shared = run.link == "host" and run.gpus <= run.tensor_parallel_size
    memory = SHARED_CACHE_GIB if shared else None
    share = 0.4 if shared else 0.5  # quick to fill, and room for who else is there
    return VllmOptions(
        model=target,
        served_model_name=SERVED,
        mode=mode,
        draft_model=draft,
        tensor_parallel_size=run.tensor_parallel_size,
        num_speculative_tokens=DRAFTS,
        max_num_seqs=rows,
        kv_cache_gib=memory,
        drafter_kv_cache_gib=memory,
        link=run.link if mode == "psd" else None,
        engine_args=f"--dtype {dtype} --max-model-len {CONTEXT} --gpu-memory-utilization {share} {flags}",
    )


async def tokens_of(engine: VllmEngine, rows: Sequence[Row]) -> list[list[int]]:
    """What an engine answers, in ids."""
    return [choice["token_ids"] for choice in choices(await ask(engine, rows))]


def plain(run: argparse.Namespace, dtype: Dtype) -> dict[str, list[Plain]]:
    """What plain decoding answers to `ROWS`, asked once a run."""
    file = run.folder / f"plain-{dtype}.json"
    if not file.exists():
        file.write_text(json.dumps(asyncio.run(_ask_plain(run, dtype))), encoding="utf-8")
    found = json.loads(file.read_text(encoding="utf-8"))
    return {name: [Plain(**answer) for answer in answers] for name, answers in found.items()}


async def _ask_plain(run: argparse.Namespace, dtype: Dtype) -> dict[str, list[dict[str, Any]]]:
    async with running(options(run, "ar", dtype, "--enforce-eager")) as engine:
        return {
            name: [asdict(plain_of(choice)) for choice in choices(await ask_plain(engine, rows))]
            for name, rows in ROWS.items()
        }


def memory_used() -> int:
    """Of all GPUs that this process may use together, by whomever (MiB)."""
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        asked += ["-i", visible]  # others may be somebody else's
    said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20).stdout
    return sum(int(line) for line in said.split())


def memory_back(before: int, slack: int, seconds: float) -> int:
    """What more is used than before, once it is little, or when the time is over (MiB)."""
    deadline = time.monotonic() + seconds
    while (more := memory_used() - before) > slack and time.monotonic() < deadline:
        time.sleep(0.2)
    return more
