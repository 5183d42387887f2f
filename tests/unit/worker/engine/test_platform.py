"""What the machine decides."""

from pathlib import Path

import pytest

from worker.engine import platform

GIB = 1024**3


@pytest.mark.parametrize(("free", "space"), [(0, 1), (7 * GIB, 1), (20 * GIB, 2), (500 * GIB, 4)])
def test_kv_cache_space(free: int, space: int) -> None:
    assert platform.kv_cache_gib(free) == space


def test_the_users_environment_wins(tmp_path: Path) -> None:
    environ = {"VLLM_CPU_KVCACHE_SPACE": "7", "VLLM_LOGGING_LEVEL": "DEBUG", "TORCH_COMPILE_DISABLE": "0"}
    given = dict(environ)
    platform.set_environment(environ, [str(tmp_path)], cpu=True)
    platform.set_compiler(environ, eager=True, cpu=True)
    assert environ.items() >= given.items()
    assert environ["HF_HUB_OFFLINE"] == "1"


def test_a_gpu_gets_none_of_what_a_cpu_needs() -> None:
    environ: dict[str, str] = {}
    platform.set_environment(environ, ["some/model"], cpu=False)
    platform.set_compiler(environ, eager=True, cpu=False)
    assert not any("CPU" in name or "TORCH" in name for name in environ)
    assert "HF_HUB_OFFLINE" not in environ
    assert platform.engine_flags(cpu=False) == []


def test_an_engine_mode_may_have_a_worker_of_its_own() -> None:
    flags = platform.engine_flags(cpu=True)
    assert flags[-2:] == ["--worker-cls", "worker.engine.vllm_cpu_worker.CpuWorker"]
    assert platform.engine_flags(cpu=True, own_worker=True) == flags[:-2]


def test_compiling_stays_possible() -> None:
    environ: dict[str, str] = {}
    platform.set_compiler(environ, eager=False, cpu=True)
    assert environ == {}


def test_a_gpu_runs_more_rows_at_once() -> None:
    assert platform.default_max_num_seqs(cpu=True) < platform.default_max_num_seqs(cpu=False)
