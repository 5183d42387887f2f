"""From the worker's settings to vLLM's own: plain values in, `vllm serve` flags out, parsed by vLLM's parser."""

import json
import re
import shlex
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from worker.engine import platform
from worker.engine.protocol import EngineStartError
from worker.engine.rows import one_line
from worker.minedraft import classes
from worker.strategies import catalogue
from worker.strategies.seam import Strategy

_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_HUB_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """How to run vLLM.

    Attributes:
        model: a folder, or a name on the Hugging Face Hub.
        served_model_name: what rows call it.
        mode: `ar` (one token a step), `sd` (vLLM's own speculative decoding) or `psd` (two overlapped batches).
        draft_model: the model that drafts; `sd` and `psd` only.
        tensor_parallel_size: devices that share the target model.
        num_speculative_tokens: tokens drafted per step; `sd` and `psd` only.
        draft_sample_method: whether drafts are the likeliest tokens, or drawn, for rows that are sampled without a
            seed; `sd` and `psd` only.
        max_num_seqs: rows in flight; in `psd` those of both batches.
        verifier_cpus: the cores of the target model's ranks; none: a fair share.
        drafter_cpus: the cores of the draft model's rank; none: a fair share.
        kv_cache_gib: memory of the target model's KV cache on each rank (GiB); None: what the platform chooses.
        drafter_kv_cache_gib: memory of the draft model's KV cache (GiB); None: as much as a verifier's.
        drafter_gpu_memory_utilization: the share of its GPU's memory that the draft model's rank may use, above 0 and
            at most 1; None: as much as a verifier of its own.
        link: what carries messages between verifiers and drafter; None: what the platform has.
        engine_args: more flags, as `vllm serve` takes them; they win over everything above.
        ranks: the classes of mode `psd`; those of CPUs stand for the platform's own.
        strategy: of mode `psd`: how its rows take turns, and what becomes of drafts.
    """

    model: str
    served_model_name: str
    mode: Literal["ar", "sd", "psd"] = "ar"
    draft_model: str | None = None
    tensor_parallel_size: int = 1
    num_speculative_tokens: int = 1
    draft_sample_method: Literal["greedy", "probabilistic"] = "greedy"
    max_num_seqs: int = 16
    verifier_cpus: tuple[int, ...] = ()
    drafter_cpus: tuple[int, ...] = ()
    kv_cache_gib: float | None = None
    drafter_kv_cache_gib: float | None = None
    drafter_gpu_memory_utilization: float | None = None
    link: Literal["nccl", "host"] | None = None
    engine_args: str = ""
    ranks: classes.Ranks = classes.RANKS
    strategy: Strategy = field(default_factory=Strategy)

    @property
    def models(self) -> list[str]:
        """The models that this mode loads."""
        return [self.model, self.draft_model] if self.mode != "ar" and self.draft_model else [self.model]

    def ranks_on(self, *, cpu: bool) -> classes.Ranks:
        """The classes of mode `psd`.

        Args:
            cpu: whether this is vLLM's CPU build.
        """
        return classes.on_platform(self.ranks, cpu=cpu)

    def link_on(self, *, cpu: bool) -> Literal["nccl", "host"]:
        """What carries messages between verifiers and drafter.

        Args:
            cpu: whether this is vLLM's CPU build.
        """
        return self.link or ("host" if cpu else "nccl")


def default_flags(options: VllmOptions, *, cpu: bool) -> list[str]:
    """The command line that the options stand for, without the user's own `engine_args`.

    Raises:
        EngineStartError: the options contradict each other.
    """
    return [
        *("--model", options.model),
        *("--served-model-name", options.served_model_name),
        *("--tensor-parallel-size", str(options.tensor_parallel_size)),
        *("--max-num-seqs", str(options.max_num_seqs)),
        "--no-use-tqdm-on-load",
        # Whoever can write rows owns the fleet; `vllm serve` answers strangers.
        "--trust-request-chat-template",
        *platform.engine_flags(cpu=cpu, own_worker=options.mode == "psd"),
        *_memory(options),
        *mode_flags(options, cpu=cpu),
    ]


def _memory(options: VllmOptions) -> list[str]:
    memory = options.kv_cache_gib
    return [] if memory is None else ["--kv-cache-memory-bytes", str(int(memory * 1024**3))]


def mode_flags(options: VllmOptions, *, cpu: bool) -> list[str]:
    """What the engine mode adds to the command line.

    Args:
        options: all of them.
        cpu: whether this is vLLM's CPU build.

    Raises:
        EngineStartError: the mode lacks something, or does not exist.
    """
    match options.mode:
        case "ar":
            return []
        case "sd":
            return _speculation(options)
        case "psd":
            ranks = options.ranks_on(cpu=cpu)
            return [
                *_speculation(options, draft_tensor_parallel_size=1),
                *("--distributed-executor-backend", classes.EXECUTOR),
                *("--scheduler-cls", ranks.scheduler),
                *("--worker-cls", ranks.verifier),
                "--async-scheduling" if ranks.runner == "V2" else "--no-async-scheduling",
            ]
        case unknown:
            raise EngineStartError(f"there is no engine mode {unknown!r}")


def check_mode(options: VllmOptions, *, cpu: bool) -> None:
    """See that the engine mode has what it needs, and its strategy goes, before vLLM is imported.

    Raises:
        EngineStartError: it lacks something, or does not run on this platform.
    """
    mode_flags(options, cpu=cpu)
    if cpu and options.link == "nccl":
        raise EngineStartError("--link nccl is for GPUs: --link host")
    if not cpu and (options.verifier_cpus or options.drafter_cpus):
        raise EngineStartError("--verifier-cpus and --drafter-cpus are for CPUs: --engine-args '--device-ids ...'")
    if cpu and options.drafter_gpu_memory_utilization is not None:
        raise EngineStartError("--drafter-gpu-memory-utilization is for GPUs: --drafter-kv-cache-gib")
    if options.mode != "psd":
        return
    runner = options.ranks_on(cpu=cpu).runner
    if not cpu and runner == "V1":
        raise EngineStartError("mode psd: ranks on vLLM's V1 model runner, as these, are for its CPU build")
    if fault := strategy_fault(options.strategy, options.num_speculative_tokens, runner):
        raise EngineStartError(fault)


def strategy_fault(strategy: Strategy, drafts: int, runner: catalogue.Runner) -> str | None:
    """Why a strategy does not go, in a line for the user; None: it does.

    Args:
        strategy: of mode `psd`.
        drafts: tokens drafted a step, at most.
        runner: of vLLM.
    """
    if fault := catalogue.unfit(strategy, runner):
        return fault
    if strategy.extra >= drafts:
        return (
            f"--extra-drafts {strategy.extra} of --num-speculative-tokens {drafts} leaves no draft to verify: "
            f"--num-speculative-tokens {strategy.extra + 1} or more"
        )
    if strategy.mode == "pearl" and drafts == 1:
        return "--mode pearl drafts a guess and what follows it: --num-speculative-tokens 2 or more"
    return None


def _speculation(options: VllmOptions, **more: int) -> list[str]:
    if not options.draft_model:
        raise EngineStartError(f"mode {options.mode} needs a draft model: --draft-model (or --mode ar)")
    speculation = {
        "method": "draft_model",
        "model": options.draft_model,
        "num_speculative_tokens": options.num_speculative_tokens,
        "draft_sample_method": options.draft_sample_method,
        **more,
    }
    return ["--speculative-config", json.dumps(speculation)]


def parse(options: VllmOptions, *, cpu: bool) -> Namespace:
    """Read all flags with vLLM's own parser: its engine's and those of its OpenAI front end.

    Raises:
        EngineStartError: an unknown flag, a bad value, or options that contradict each other.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - seconds
    from vllm.entrypoints.launchers.cli_args import BaseFrontendArgs  # noqa: PLC0415
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    class Parser(FlexibleArgumentParser):  # type: ignore[misc] # vLLM's types are not read
        def error(self, message: str) -> NoReturn:
            raise EngineStartError(one_line(f"--engine-args: {message}"))

    parser = Parser(add_help=False, allow_abbrev=False)
    BaseFrontendArgs.add_cli_args(parser)
    AsyncEngineArgs.add_cli_args(parser)
    try:
        parsed: Namespace = parser.parse_args(default_flags(options, cpu=cpu))
        return parser.parse_args(shlex.split(options.engine_args), parsed)  # type: ignore[no-any-return]
    except ValueError as error:  # an open quote, or a flag whose type checks its value by itself
        raise EngineStartError(one_line(f"--engine-args: {error}")) from None


def check_model(name: str) -> None:
    """See that a model can be had, before minutes are spent on finding out that it cannot.

    Raises:
        EngineStartError: there is no such folder, no model in it, or nothing of that name on the Hub.
    """
    path = Path(name)
    if path.is_dir():
        if not any((path / file).is_file() for file in ("config.json", "params.json")):
            raise EngineStartError(f"model not found: the folder {name} has no config.json")
        return
    if path.is_file():
        return  # a GGUF file: vLLM knows
    if not _HUB_NAME.fullmatch(name):
        if "://" in name:
            return  # an object store: vLLM knows
        raise EngineStartError(f"model not found: there is no folder {name}")
    _check_hub(name)


def _check_hub(name: str) -> None:
    from huggingface_hub import HfApi, try_to_load_from_cache  # noqa: PLC0415 - comes with vLLM
    from huggingface_hub.constants import is_offline_mode  # noqa: PLC0415
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError  # noqa: PLC0415

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    not_here = f"model not found: {name} is no folder here and not in the Hugging Face cache"
    if is_offline_mode():
        raise EngineStartError(f"{not_here}, and HF_HUB_OFFLINE is set")
    try:
        HfApi().model_info(name, timeout=_HUB_TIMEOUT_S)
    except GatedRepoError:
        raise EngineStartError(f"model {name} is gated: its owner must let you in (HF_TOKEN)") from None
    except RepositoryNotFoundError:
        raise EngineStartError(f"{not_here}, and not on the Hugging Face Hub") from None
    except Exception as error:
        raise EngineStartError(one_line(f"{not_here}, and the Hub cannot be asked: {error}")) from None


def served_names(parsed: Namespace) -> tuple[str, ...]:
    """The names that rows may use: the model's, of which the first one is the name in answers, and its adapters'."""
    names: Any = parsed.served_model_name or parsed.model
    return ((names,) if isinstance(names, str) else tuple(names)) + tuple(
        adapter.name for adapter in parsed.lora_modules or ()
    )
