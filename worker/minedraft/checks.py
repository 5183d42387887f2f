"""What must hold for two batches, checked before or while the engine starts: all that would otherwise fail silently."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import vllm
from transformers import PreTrainedTokenizerBase
from vllm.tokenizers import get_tokenizer
from vllm.utils.import_utils import resolve_obj_by_qualname

from worker.minedraft.classes import EXECUTOR, RANKS, RANKS_V2, Ranks
from worker.minedraft.stages import MAX_DRAFTS

#: The hooks are those of this version; another one may have moved them.
VLLM_VERSION = "0.32.0"


@dataclass(frozen=True, slots=True)
class _Runner:
    """What an engine on one of vLLM's model runners needs.

    Attributes:
        v2: whether it is the second one, whose workers are asynchronous; the first one's have to be synchronous.
        wrong_workers: said of workers that are not.
        wrong_runner: said of another runner.
        other: that one's name.
    """

    v2: bool
    wrong_workers: str
    wrong_runner: str
    other: str


_RUNNERS = {
    "V1": _Runner(
        False,
        "two batches need synchronous workers (--no-async-scheduling)",
        "two batches need vLLM's V1 model runner on CPUs (VLLM_USE_V2_MODEL_RUNNER=0)",
        "V2",
    ),
    "V2": _Runner(
        True,
        "two batches need asynchronous workers on GPUs (--async-scheduling)",
        "two batches need vLLM's V2 model runner on GPUs (VLLM_USE_V2_MODEL_RUNNER=1)",
        "V1",
    ),
}
_SCHEDULERS = {ranks.scheduler: _RUNNERS[ranks.runner] for ranks in (RANKS, RANKS_V2)}


class Unfit(Exception):  # noqa: N818 - a state, named as what it says
    """Two batches cannot run with this configuration; the message is one line for the user."""


def check_config(config: Any, ranks: Ranks) -> None:
    """Check a `VllmConfig` in the front end, before any process is started.

    Args:
        config: of the engine.
        ranks: the classes that its ranks must have.

    Raises:
        Unfit: something does not go with two batches.
    """
    for fault in _faults(config, ranks):
        raise Unfit(fault)


def _faults(config: Any, ranks: Ranks) -> Iterator[str]:
    if vllm.__version__.split("+")[0] != VLLM_VERSION:
        yield f"two batches are made for vLLM {VLLM_VERSION}, this is {vllm.__version__}"
    spec, parallel = config.speculative_config, config.parallel_config
    if spec is None or not spec.uses_draft_model() or spec.parallel_drafting:
        found = "" if spec is None or spec.uses_draft_model() else f", not {spec.method}"
        yield f"two batches need a draft model that drafts token by token (method draft_model){found}"
        return
    if spec.num_speculative_tokens > MAX_DRAFTS:
        yield f"at most {MAX_DRAFTS} tokens can be drafted a step, not {spec.num_speculative_tokens}"
    if spec.rejection_sample_method != "standard":
        yield f"two batches have an accept rule of their own (rejection_sample_method {spec.rejection_sample_method})"
    if spec.num_speculative_tokens_per_batch_size is not None:
        yield "two batches draft the same number of tokens in each step (num_speculative_tokens_per_batch_size)"
    if spec.enable_adaptive_verification:
        yield "two batches verify all drafts of a row (enable_adaptive_verification)"
    if spec.use_heterogeneous_vocab:
        yield "two batches need one tokenizer for both models (use_heterogeneous_vocab)"
    runner = _RUNNERS[ranks.runner]
    if runner.v2:
        yield from _v2_faults(config)
    sizes = {"pipeline": parallel.pipeline_parallel_size, "data": parallel.data_parallel_size}
    yield from (f"two batches need {name}-parallel-size 1, not {size}" for name, size in sizes.items() if size != 1)
    if parallel.nnodes != 1:
        yield "two batches run on one host"
    classes = {
        "--distributed-executor-backend": (parallel.distributed_executor_backend, EXECUTOR),
        "--scheduler-cls": (config.scheduler_config.scheduler_cls, ranks.scheduler),
        "--worker-cls": (parallel.worker_cls, ranks.verifier),
    }
    yield from (f"{flag} must be {ours}, not {it}" for flag, (it, ours) in classes.items() if it != ours)
    if bool(config.scheduler_config.async_scheduling) is not runner.v2:
        yield runner.wrong_workers
    if config.use_v2_model_runner is not runner.v2:
        yield runner.wrong_runner
    yield from (f"two batches do not go with {name} yet" for name, setting in _extras(config).items() if setting)
    yield from _unlike(spec.target_model_config, spec.draft_model_config)


def _v2_faults(config: Any) -> Iterator[str]:
    """What goes on vLLM's V1 runner, or is not there, and does not go on its V2 runner."""
    spec, parallel = config.speculative_config, config.parallel_config
    if spec.draft_sample_method != "greedy":
        yield f"two batches on GPUs draft the likeliest tokens, so far (draft_sample_method {spec.draft_sample_method})"
    if parallel.data_parallel_size != 1:
        yield (
            f"two batches need data-parallel-size 1, not {parallel.data_parallel_size}: instead, run one worker for "
            f"every {parallel.tensor_parallel_size + 1} GPUs, each with its own --engine-args '--device-ids ...'; "
            "they share the rows of one queue"
        )
    # vLLM spreads a KV cache over them, and all our ranks share block numbers.
    sizes = {"prefill": parallel.prefill_context_parallel_size, "decode": parallel.decode_context_parallel_size}
    for name, size in sizes.items():
        if size != 1:
            yield f"two batches need {name}-context-parallel-size 1, not {size}"
    for feature in config._get_v2_model_runner_unsupported_features():
        yield f"vLLM's V2 model runner has no {feature}"


def _extras(config: Any) -> dict[str, Any]:
    """What vLLM has and two batches have not, by a name that says how it is asked for: true where it is."""
    model, reasoning = config.model_config, config.reasoning_config
    return {
        "LoRA adapters (--enable-lora)": config.lora_config,
        "KV transfer (--kv-transfer-config)": config.kv_transfer_config,
        "EC transfer (--ec-transfer-config)": config.ec_transfer_config,
        "images or audio": model.multimodal_config,
        "priorities (--scheduling-policy)": config.scheduler_config.policy != "fcfs",
        "logits processors (--logits-processors)": model.logits_processors,
        "prompt embeddings (--enable-prompt-embeds)": model.enable_prompt_embeds,
        # With a parser alone there is such a configuration too, and nobody asked for a budget.
        "a budget of thinking tokens (--reasoning-config)": reasoning
        and (reasoning.reasoning_start_str or reasoning.reasoning_end_str),
        "the replay of traces (--enable-trace-replay)": model.enable_trace_replay,
        "routed experts (--enable-return-routed-experts)": config.aux_output_config.enable_return_routed_experts,
        "sampling masks (--return-sampling-mask)": model.return_sampling_mask,
    }


def _unlike(target: Any, draft: Any) -> Iterator[str]:
    """What the draft model lacks to draft for the target."""
    if draft.max_model_len < target.max_model_len:
        yield (
            f"the draft model {draft.model} reads {draft.max_model_len:,} tokens, the target {target.max_model_len:,}:"
            f" --engine-args '--max-model-len {draft.max_model_len}'"
        )
    if draft.model == target.model:
        return
    trust = target.trust_remote_code
    its = get_tokenizer(target.tokenizer, revision=target.tokenizer_revision, trust_remote_code=trust)
    # The draft model's own: what vLLM's configuration of a draft model names is the target's.
    own = get_tokenizer(draft.model, revision=draft.revision, trust_remote_code=trust)
    if not same_tokens(its, own):
        yield f"the draft model {draft.model} has another tokenizer than the target {target.model}"


def same_tokens(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """Whether two tokenizers mean the same by each id; where a text ends may differ, the target decides that."""
    return bool(one.get_vocab() == other.get_vocab())


def check_engine(config: Any) -> None:
    """Check the engine process's `VllmConfig`, once the executor is up. What it must be its scheduler says.

    Raises:
        Unfit: vLLM would not keep two batches in flight, or would not let them take turns.
    """
    if config.max_concurrent_batches != 2:
        raise Unfit(f"vLLM would keep {config.max_concurrent_batches} batches in flight, not 2")
    scheduler = config.scheduler_config.scheduler_cls
    runner = next((_SCHEDULERS[name] for name in _lineage(scheduler) if name in _SCHEDULERS), None)
    if runner is None:
        raise Unfit(f"scheduler_cls is {scheduler}, not {' or '.join(_SCHEDULERS)}")
    if config.use_v2_model_runner is not runner.v2:
        raise Unfit(f"the engine would speak to vLLM's {runner.other} runner")


def _lineage(name: str) -> Iterator[str]:
    """What a class is called, and the classes that it is made of."""
    yield name
    if name not in _SCHEDULERS and find_spec(name.partition(".")[0]):
        yield from (f"{of.__module__}.{of.__qualname__}" for of in resolve_obj_by_qualname(name).__mro__)


def check_kv_groups(configs: Sequence[Any]) -> None:
    """Check the `KVCacheConfig` of each rank, the drafter's last.

    Raises:
        Unfit: the ranks cannot share one block table.
    """
    target, draft = configs[0], configs[-1]
    if len(target.kv_cache_groups) != 1 or len(draft.kv_cache_groups) != 1:
        raise Unfit("both models need one kind of KV cache (no sliding windows beside full attention, no Mamba layers)")
    sizes = {config.kv_cache_groups[0].kv_cache_spec.block_size for config in configs}
    if len(sizes) != 1 or len({config.num_blocks for config in configs}) != 1:
        raise Unfit(f"the ranks differ in their KV cache blocks: sizes {sorted(sizes)}")


def scarcest(names: Sequence[str], available: Sequence[int], configs: Sequence[Any]) -> tuple[str, list[int]]:
    """Which rank limits the number of KV blocks that all of them get.

    Args:
        names: of the ranks.
        available: KV cache memory of each rank (bytes).
        configs: the `KVCacheConfig` of each rank.

    Returns:
        The rank's name, and how many blocks each rank has room for.
    """
    per_block = [sum(tensor.size for tensor in config.kv_cache_tensors) // config.num_blocks for config in configs]
    blocks = [memory // max(size, 1) for memory, size in zip(available, per_block, strict=True)]
    return names[blocks.index(min(blocks))], blocks
