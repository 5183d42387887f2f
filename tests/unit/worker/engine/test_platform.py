"""What the machine decides."""

from pathlib import Path

import pytest

from worker.engine import platform
from worker.engine.protocol import EngineStartError

GIB = 1024**3


@pytest.mark.parametrize(("free", "space"), [(0, 1), (7 * GIB, 1), (20 * GIB, 2), (500 * GIB, 4)])
def test_kv_cache_space(free: int, space: int) -> None:
    assert platform.kv_cache_gib(free) == space


def test_the_users_environment_wins(tmp_path: Path) -> None:
    environ = {"VLLM_LOGGING_LEVEL": "DEBUG", "TORCH_COMPILE_DISABLE": "0"}
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


def test_memory_is_a_flag_because_a_variable_would_win_over_the_users_flag(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    platform.set_environment(environ, [str(tmp_path)], cpu=True)
    assert "VLLM_CPU_KVCACHE_SPACE" not in environ
    flags = platform.engine_flags(cpu=True)
    assert int(flags[flags.index("--kv-cache-memory-bytes") + 1]) in {gib * GIB for gib in range(1, 5)}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with a program in it."""
    (tmp_path / "cc++").touch(0o755)
    return tmp_path


def test_eager_is_eager_throughout(tools: Path) -> None:
    assert platform.compiler_variables({"PATH": ""}, eager=True, cpu=True) == {"TORCH_COMPILE_DISABLE": "1"}
    assert platform.compiler_variables({"PATH": str(tools), "CXX": "cc++"}, eager=False, cpu=True) == {}


@pytest.mark.parametrize("chosen", ["cc++ -march=native", "cc++ g++", "  cc++"])
def test_a_compiler_may_be_more_than_a_word(chosen: str, tools: Path) -> None:
    """As in `ccache g++`: what is to be there is the program."""
    assert platform.compiler_variables({"PATH": str(tools), "CXX": chosen}, eager=False, cpu=True) == {}


def test_without_a_compiler_one_line_says_so(tools: Path) -> None:
    for chosen, name in (({}, r"g\+\+"), ({"CXX": "clang++"}, r"clang\+\+"), ({"CXX": "ccache cc++"}, "ccache:")):
        with pytest.raises(EngineStartError, match=f"needs a C.. compiler, and there is no {name}") as caught:
            platform.set_compiler({"PATH": str(tools), **chosen}, eager=False, cpu=True)
        assert "\n" not in str(caught.value)


def test_who_compiles_nothing_needs_no_compiler(tools: Path) -> None:
    platform.compiler_variables({"PATH": str(tools)}, eager=True, cpu=True)
    platform.compiler_variables({"PATH": str(tools), "TORCH_COMPILE_DISABLE": "1"}, eager=False, cpu=True)
    platform.compiler_variables({"PATH": str(tools)}, eager=False, cpu=False)  # a GPU's is Triton's business


V2, TIMEOUT = "VLLM_USE_V2_MODEL_RUNNER", platform.STEP_TIMEOUT


def test_a_runner_is_chosen_for_all_processes() -> None:
    assert platform.runner_variables({}, v2=False) == {}
    assert platform.runner_variables({}, v2=True) == {V2: "1", TIMEOUT: "60"}
    assert platform.runner_variables({V2: "", TIMEOUT: ""}, v2=True) == {V2: "1", TIMEOUT: "60"}
    assert platform.runner_variables({V2: "1", TIMEOUT: "300"}, v2=True) == {V2: "1"}, "the user's limit stands"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (V2, "0"),
        ("VLLM_ENABLE_STARTUP_PLAN", "1"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
        ("CUDA_LAUNCH_BLOCKING", "1"),
    ],
)
def test_what_does_not_go_with_that_runner_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(EngineStartError, match=f"unset {name}={value}$"):
        platform.runner_variables({name: value}, v2=True)
    assert platform.runner_variables({name: value}, v2=False) == {}


@pytest.mark.parametrize(("name", "value"), [("VLLM_ENABLE_STARTUP_PLAN", "0"), ("CUDA_DEVICE_MAX_CONNECTIONS", "8")])
def test_what_goes_with_it_does_not_matter(name: str, value: str) -> None:
    assert platform.runner_variables({name: value}, v2=True)[V2] == "1"


def test_a_gpu_runs_more_rows_at_once() -> None:
    assert platform.default_max_num_seqs(cpu=True) < platform.default_max_num_seqs(cpu=False)
