"""What two batches need, each with the words that say so."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace as Thing
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from worker.minedraft import checks, classes
from worker.minedraft.checks import Unfit, check_config, check_engine, check_kv_groups, same_tokens, scarcest
from worker.minedraft.classes import RANKS, RANKS_V2, Ranks
from worker.minedraft.stages import MAX_DRAFTS


def tokenizer(vocabulary: Mapping[str, int], eos: str = "a") -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(dict(vocabulary))), eos_token=eos)


ABC = tokenizer({"a": 0, "b": 1, "c": 2})
#: What `get_tokenizer` finds.
TOKENIZERS = {
    "target": ABC,
    "alike": tokenizer({"c": 2, "b": 1, "a": 0}, eos="b"),
    "swapped": tokenizer({"a": 0, "b": 2, "c": 1}),
}


def model(name: str, length: int = 2048) -> Thing:
    return Thing(
        model=name,
        tokenizer="target",  # vLLM's configuration of a draft model names the target's tokenizer, too
        tokenizer_revision=None,
        revision=None,
        trust_remote_code=False,
        max_model_len=length,
        multimodal_config=None,
        logits_processors=None,
        enable_prompt_embeds=False,
        enable_trace_replay=False,
        return_sampling_mask=False,
    )


def fit(ranks: Ranks = RANKS) -> Any:
    """A stand-in for the `VllmConfig` that the engine's flags make."""
    target, v2 = model("target"), ranks.runner == "V2"
    return Thing(
        model_config=target,
        speculative_config=Thing(
            uses_draft_model=lambda: True,
            parallel_drafting=False,
            num_speculative_tokens=MAX_DRAFTS,
            rejection_sample_method="standard",
            num_speculative_tokens_per_batch_size=None,
            enable_adaptive_verification=False,
            method="eagle3",
            use_heterogeneous_vocab=False,
            draft_sample_method="greedy" if v2 else "probabilistic",
            target_model_config=target,
            draft_model_config=model("alike"),
        ),
        parallel_config=Thing(
            tensor_parallel_size=4,
            pipeline_parallel_size=1,
            prefill_context_parallel_size=1,
            decode_context_parallel_size=1,
            data_parallel_size=1,
            nnodes=1,
            distributed_executor_backend=classes.EXECUTOR,
            worker_cls=ranks.verifier,
        ),
        scheduler_config=Thing(scheduler_cls=ranks.scheduler, async_scheduling=v2, policy="fcfs"),
        use_v2_model_runner=v2,
        _get_v2_model_runner_unsupported_features=list,
        lora_config=None,
        kv_transfer_config=None,
        ec_transfer_config=None,
        reasoning_config=Thing(reasoning_start_str="", reasoning_end_str=""),  # as a parser alone makes it
        aux_output_config=Thing(enable_return_routed_experts=False),
        max_concurrent_batches=2,
    )


@pytest.fixture(autouse=True)
def _no_tokenizers_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "get_tokenizer", lambda name, **_: TOKENIZERS[name])


#: On vLLM's V2 runner, with other workers.
ELSEWHERE = replace(RANKS_V2, verifier="its.Verifier", drafter="its.Drafter")


@pytest.mark.parametrize("ranks", [RANKS, RANKS_V2, ELSEWHERE])
def test_a_fit_configuration_passes(ranks: Ranks) -> None:
    check_config(fit(ranks), ranks)
    check_engine(fit(ranks))


def changed(config: Any, path: str, value: object) -> Any:
    """The same configuration, but for one value."""
    *parents, name = path.split(".")
    holder = config
    for parent in parents:
        holder = getattr(holder, parent)
    setattr(holder, name, value)
    return config


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("speculative_config.draft_sample_method", "probabilistic", "so far .draft_sample_method probabilistic"),
        ("speculative_config.uses_draft_model", lambda: False, "need a draft model .*, not eagle3"),
        ("speculative_config.rejection_sample_method", "synthetic", "rejection_sample_method synthetic"),
        (
            "parallel_config.data_parallel_size",
            2,
            "data-parallel-size 1, not 2: instead, run one worker for every 5 GPUs, each with .* '--device-ids ...'",
        ),
        ("parallel_config.pipeline_parallel_size", 2, "pipeline-parallel-size 1, not 2"),
        ("parallel_config.prefill_context_parallel_size", 2, "prefill-context-parallel-size 1, not 2"),
        ("parallel_config.decode_context_parallel_size", 4, "decode-context-parallel-size 1, not 4"),
        ("parallel_config.nnodes", 2, "one host"),
        ("parallel_config.distributed_executor_backend", "ray", f"must be {classes.EXECUTOR}, not ray"),
        ("parallel_config.worker_cls", "auto", "--worker-cls must be its.Verifier, not auto"),
        ("scheduler_config.scheduler_cls", classes.SCHEDULER, f"--scheduler-cls must be {RANKS_V2.scheduler}"),
        ("scheduler_config.async_scheduling", False, "need asynchronous workers on GPUs .--async-scheduling"),
        ("use_v2_model_runner", False, "VLLM_USE_V2_MODEL_RUNNER=1"),
        ("_get_v2_model_runner_unsupported_features", lambda: ["this", "that"], "V2 model runner has no this"),
        ("lora_config", Thing(), "LoRA"),
    ],
)
def test_what_does_not_go_with_two_batches_on_gpus_is_named(path: str, value: object, words: str) -> None:
    config = changed(fit(ELSEWHERE), path, value)
    with pytest.raises(Unfit, match=words) as unfit:
        check_config(config, ELSEWHERE)
    assert "\n" not in str(unfit.value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("speculative_config", None, "need a draft model"),
        ("speculative_config.uses_draft_model", lambda: False, "need a draft model .*, not eagle3"),
        ("speculative_config.parallel_drafting", True, "token by token"),
        ("speculative_config.num_speculative_tokens", MAX_DRAFTS + 1, f"at most {MAX_DRAFTS} .* not {MAX_DRAFTS + 1}"),
        ("speculative_config.rejection_sample_method", "synthetic", "rejection_sample_method synthetic"),
        ("speculative_config.num_speculative_tokens_per_batch_size", [(1, 4, 2)], "same number of tokens"),
        ("speculative_config.enable_adaptive_verification", True, "enable_adaptive_verification"),
        ("speculative_config.use_heterogeneous_vocab", True, "one tokenizer"),
        ("parallel_config.pipeline_parallel_size", 2, "pipeline-parallel-size 1, not 2"),
        ("parallel_config.data_parallel_size", 3, "data-parallel-size 1, not 3"),
        ("parallel_config.nnodes", 2, "one host"),
        ("parallel_config.distributed_executor_backend", "mp", f"--distributed-executor-backend .* {classes.EXECUTOR}"),
        ("parallel_config.worker_cls", "other.Worker", f"--worker-cls .* {classes.VERIFIER}, not other.Worker"),
        ("scheduler_config.scheduler_cls", None, f"--scheduler-cls .* {classes.SCHEDULER}, not None"),
        ("scheduler_config.async_scheduling", True, "--no-async-scheduling"),
        ("use_v2_model_runner", True, "VLLM_USE_V2_MODEL_RUNNER=0"),
        ("lora_config", Thing(), "LoRA"),
        ("kv_transfer_config", Thing(), "KV transfer"),
        ("ec_transfer_config", Thing(), "EC transfer"),
        ("model_config.multimodal_config", Thing(), "images or audio"),
        ("scheduler_config.policy", "priority", "--scheduling-policy"),
        ("model_config.logits_processors", ["some.Class"], "--logits-processors"),
        ("model_config.enable_prompt_embeds", True, "--enable-prompt-embeds"),
        ("model_config.enable_trace_replay", True, "--enable-trace-replay"),
        ("aux_output_config.enable_return_routed_experts", True, "--enable-return-routed-experts"),
        ("model_config.return_sampling_mask", True, "--return-sampling-mask"),
        ("reasoning_config.reasoning_start_str", "<think>", "--reasoning-config"),
        ("reasoning_config.reasoning_end_str", "</think>", "--reasoning-config"),
        ("speculative_config.draft_model_config", model("alike", 1024), "--max-model-len 1024"),
        ("speculative_config.draft_model_config", model("swapped"), "draft model swapped has another tokenizer"),
    ],
)
def test_what_does_not_go_with_two_batches_is_named(path: str, value: object, words: str) -> None:
    config = changed(fit(), path, value)
    with pytest.raises(Unfit, match=words) as unfit:
        check_config(config, Ranks())
    assert "\n" not in str(unfit.value)


def test_another_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.vllm, "__version__", f"{checks.VLLM_VERSION}+cpu")
    check_config(fit(), Ranks())
    monkeypatch.setattr(checks.vllm, "__version__", "0.33.0")
    with pytest.raises(Unfit, match=r"made for vLLM 0\.32\.0, this is 0\.33\.0"):
        check_config(fit(), Ranks())


def test_a_model_that_drafts_for_itself_has_its_own_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "get_tokenizer", lambda *_, **__: pytest.fail("loaded for nothing"))
    config = fit()
    config.speculative_config.draft_model_config = model("target")
    check_config(config, Ranks())


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (tokenizer({"c": 2, "b": 1, "a": 0}), True),
        (tokenizer({"a": 0, "b": 1, "c": 2}, eos="c"), True),
        (tokenizer({"a": 0, "b": 2, "c": 1}), False),
        (tokenizer({"a": 0, "b": 1, "c": 2, "d": 3}), False),
    ],
)
def test_tokenizers_are_the_same_when_each_id_means_the_same(other: PreTrainedTokenizerFast, same: bool) -> None:
    assert same_tokens(ABC, other) is same


@pytest.mark.parametrize(
    ("ranks", "path", "value", "words"),
    [
        (RANKS, "max_concurrent_batches", 1, "1 batches in flight, not 2"),
        (RANKS, "scheduler_config.scheduler_cls", "x.Y", f"scheduler_cls is x.Y, not {classes.SCHEDULER}"),
        (RANKS, "use_v2_model_runner", True, "V2 runner"),
        (RANKS_V2, "max_concurrent_batches", 3, "3 batches in flight, not 2"),
        (RANKS_V2, "scheduler_config.scheduler_cls", classes.SCHEDULER, "V2 runner"),
        (RANKS_V2, "use_v2_model_runner", False, "V1 runner"),
    ],
)
def test_an_engine_that_would_not_alternate_is_refused(ranks: Ranks, path: str, value: object, words: str) -> None:
    with pytest.raises(Unfit, match=words):
        check_engine(changed(fit(ranks), path, value))


def kv(blocks: int = 10, *, size: int = 16, groups: int = 1, memory: tuple[int, ...] = (1000,)) -> Thing:
    """A stand-in for a rank's `KVCacheConfig`; its tensors take so many bytes for all blocks."""
    return Thing(
        num_blocks=blocks,
        kv_cache_groups=[Thing(kv_cache_spec=Thing(block_size=size))] * groups,
        kv_cache_tensors=[Thing(size=tensor) for tensor in memory],
    )


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([kv(groups=2), kv()], "one kind of KV cache"),
        ([kv(), kv(groups=2)], "one kind of KV cache"),
        ([kv(), kv(groups=0)], "one kind of KV cache"),
        ([kv(), kv(), kv(size=32)], r"sizes \[16, 32\]"),
        ([kv(), kv(blocks=9)], "differ in their KV cache blocks"),
    ],
)
def test_ranks_that_cannot_share_block_numbers_are_refused(ranks: list[Thing], words: str) -> None:
    check_kv_groups([kv(), kv(), kv()])
    with pytest.raises(Unfit, match=words):
        check_kv_groups(ranks)


def test_the_rank_with_room_for_the_fewest_blocks_is_named() -> None:
    ranks = [kv(memory=(600, 400)), kv(memory=(100,))]  # 100 and 10 bytes a block
    assert scarcest(["verifier", "drafter"], [2000, 150], ranks) == ("drafter", [20, 15])
    assert scarcest(["verifier", "drafter"], [1499, 150], ranks) == ("verifier", [14, 15])
