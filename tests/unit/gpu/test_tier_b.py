"""What can be known of tier B without a GPU: where it runs, and that its flags are vLLM's."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from gpu import engines, tier_b
from gpu.engine_parts import EAGER, GRAPHS
from gpu.engines import IN_CHUNKS, ROWS, many, memory_back, options

from worker.engine import vllm_args

SCRIPT = Path(tier_b.__file__)


@pytest.mark.parametrize(
    ("installed", "cpu_build", "gpus", "word"),
    [(False, False, 2, "not installed"), (True, True, 2, "CUDA build"), (True, False, 0, "needs a GPU")],
)
def test_what_is_missing_is_said(installed: bool, cpu_build: bool, gpus: int, word: str) -> None:
    said = tier_b.why_not(installed=installed, cpu_build=cpu_build, gpus=gpus)
    assert said is not None
    assert word in said
    assert tier_b.why_not(installed=True, cpu_build=False, gpus=1) is None


@pytest.mark.parametrize(
    ("asked", "gpus", "verifiers", "link"),
    [(None, 2, 1, "nccl"), (None, 1, 1, "host"), (None, 2, 2, "host"), ("host", 8, 1, "host"), ("nccl", 1, 1, "nccl")],
)
def test_the_link_is_what_the_gpus_can_do(asked: str | None, gpus: int, verifiers: int, link: str) -> None:
    assert tier_b.link_for(asked, gpus=gpus, verifiers=verifiers) == link


@pytest.mark.parametrize(("more", "code"), [((), 2), (("--if-installed",), 0)])
def test_here_it_says_in_a_line_that_it_cannot_run(more: tuple[str, ...], code: int) -> None:
    ended = subprocess.run([sys.executable, SCRIPT, *more], capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert ended.stdout == "tier B needs vLLM's CUDA build, and its CPU build is installed\n"
    assert ended.stderr == ""


@pytest.fixture
def run(tmp_path: Path) -> Namespace:
    return Namespace(model="t", draft_model="d", folder=tmp_path, link="nccl", gpus=2, tensor_parallel_size=1)


@pytest.mark.parametrize("flags", [EAGER, GRAPHS, f"{GRAPHS} {IN_CHUNKS}"])
@pytest.mark.parametrize("mode", ["ar", "sd", "psd"])
def test_vllm_knows_the_flags(run: Namespace, mode: str, flags: str) -> None:
    parsed = vllm_args.parse(options(run, mode, "bfloat16", flags), cpu=False)
    assert parsed.dtype == "bfloat16"
    assert parsed.max_model_len == engines.CONTEXT
    assert parsed.max_num_seqs == 16
    assert parsed.kv_cache_memory_bytes is None
    assert parsed.enforce_eager == (flags == EAGER)


def test_ranks_that_share_a_gpu_are_told_how_much_of_it_they_have(run: Namespace) -> None:
    """They cannot measure it, and vLLM refuses what they may not share."""
    alone = options(run, "psd", "float32", EAGER)
    assert (alone.link, alone.kv_cache_gib, alone.drafter_kv_cache_gib) == ("nccl", None, None)
    run.link, run.gpus = "host", 1
    shared = options(run, "psd", "float32", EAGER)
    assert shared.link == "host"
    assert shared.kv_cache_gib == shared.drafter_kv_cache_gib == engines.SHARED_CACHE_GIB
    assert vllm_args.parse(shared, cpu=False).gpu_memory_utilization <= 0.4
    assert options(run, "ar", "float32", EAGER).link is None


def test_the_users_models_are_taken(run: Namespace) -> None:
    assert engines.models(run) == ("t", "d")


def test_a_pair_is_made_once_a_run(run: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def build(folder: Path, **_: object) -> None:
        folder.mkdir()
        made.append(folder)

    monkeypatch.setattr(engines, "build_pair", build)
    run.model = None
    assert [engines.models(run) for _ in range(2)] == [(f"{made[0]}/target", f"{made[0]}/draft")] * 2
    assert len(made) == 1


def test_rows_are_different_ones_and_as_long_as_they_are_meant_to_be() -> None:
    prompts = [row.body["prompt"] for rows in ROWS.values() for row in rows]
    assert len(set(prompts)) == len(prompts) == 32
    assert {len(row.body["prompt"]) for row in ROWS["long"]} == {1200}
    long = [row.body["prompt"] for row in many(64, 256)]
    assert len(set(long)) == 64
    assert {len(prompt) for prompt in long} == {200}


def test_memory_is_waited_for_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([5000, 3000, 1100])
    monkeypatch.setattr(engines, "memory_used", lambda: next(used))
    assert memory_back(1000, 200, 30) == 100
    monkeypatch.setattr(engines, "memory_used", lambda: 9000)
    assert memory_back(1000, 200, 0) == 8000
