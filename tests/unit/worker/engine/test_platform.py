"""What the machine decides."""

from pathlib import Path

import pytest

from worker.engine import platform

GIB = 1024**3


@pytest.mark.parametrize(
    ("cores", "ranks", "bound"),
    [
        ([0], 1, "0"),
        ([0, 1], 1, "0"),
        ([0, 1, 2, 3], 1, "0,1,2"),
        ([0, 1], 2, "0|1"),
        ([4, 5, 6, 7, 8], 2, "4,5|6,7"),
        ([0], 2, "nobind"),
    ],
)
def test_one_core_is_left_to_the_rest(cores: list[int], ranks: int, bound: str) -> None:
    assert platform.bind_cores(cores, ranks) == bound


@pytest.mark.parametrize(("free", "space"), [(0, 1), (7 * GIB, 1), (20 * GIB, 2), (500 * GIB, 4)])
def test_kv_cache_space(free: int, space: int) -> None:
    assert platform.kv_cache_gib(free) == space


def test_the_users_environment_wins(tmp_path: Path) -> None:
    environ = {"VLLM_CPU_KVCACHE_SPACE": "7", "VLLM_LOGGING_LEVEL": "DEBUG", "TORCH_COMPILE_DISABLE": "0"}
    given = dict(environ)
    platform.set_environment(environ, [str(tmp_path)], 1, cpu=True)
    platform.set_compiler(environ, eager=True, cpu=True)
    assert environ.items() >= given.items()
    assert environ["VLLM_CPU_OMP_THREADS_BIND"]
    assert environ["HF_HUB_OFFLINE"] == "1"


def test_a_gpu_gets_none_of_what_a_cpu_needs() -> None:
    environ: dict[str, str] = {}
    platform.set_environment(environ, ["some/model"], 1, cpu=False)
    platform.set_compiler(environ, eager=True, cpu=False)
    assert not any("CPU" in name or "TORCH" in name for name in environ)
    assert "HF_HUB_OFFLINE" not in environ
    assert platform.engine_flags(cpu=False) == []


def test_compiling_stays_possible() -> None:
    environ: dict[str, str] = {}
    platform.set_compiler(environ, eager=False, cpu=True)
    assert environ == {}


def test_a_gpu_runs_more_rows_at_once() -> None:
    assert platform.default_max_num_seqs(cpu=True) < platform.default_max_num_seqs(cpu=False)
