"""From options to flags, and what is found out before vLLM is asked."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from worker.engine import vllm_args
from worker.engine.protocol import EngineStartError
from worker.engine.vllm_args import VllmOptions, check_mode, check_model, default_flags, mode_flags
from worker.minedraft import classes
from worker.strategies.seam import Strategy


def test_plain_decoding_needs_no_flags_of_its_own() -> None:
    options = VllmOptions("m", "n", draft_model="d")
    assert mode_flags(options, cpu=True) == []
    assert options.models == ["m"]


def test_speculative_decoding_is_vllms_own() -> None:
    options = VllmOptions("m", "n", mode="sd", draft_model="d", num_speculative_tokens=4)
    flag, value = mode_flags(options, cpu=True)
    assert flag == "--speculative-config"
    assert json.loads(value) == {
        "method": "draft_model",
        "model": "d",
        "num_speculative_tokens": 4,
        "draft_sample_method": "greedy",
    }
    assert options.models == ["m", "d"]


def test_two_batches_are_vllms_speculation_with_classes_of_our_own() -> None:
    options = VllmOptions("m", "n", mode="psd", draft_model="d", num_speculative_tokens=3, tensor_parallel_size=2)
    flags = mode_flags(options, cpu=True)
    assert json.loads(flags[1]) == {
        "method": "draft_model",
        "model": "d",
        "num_speculative_tokens": 3,
        "draft_sample_method": "greedy",
        "draft_tensor_parallel_size": 1,
    }
    assert "--no-async-scheduling" in flags
    assert options.models == ["m", "d"]
    # The names are those that the check at start asks for, and the worker is named once.
    pairs = dict(pairwise(flags))
    assert pairs["--distributed-executor-backend"] == classes.EXECUTOR
    assert pairs["--scheduler-cls"] == classes.SCHEDULER
    assert pairs["--worker-cls"] == classes.VERIFIER
    assert default_flags(options, cpu=True).count("--worker-cls") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (VllmOptions("m", "n", mode="sd"), "mode sd needs a draft model: --draft-model"),
        (VllmOptions("m", "n", mode="psd"), "mode psd needs a draft model: --draft-model"),
        (VllmOptions("m", "n", mode="pearl"), "'pearl'"),  # type: ignore[arg-type]
    ],
)
def test_an_impossible_mode_is_refused(options: VllmOptions, words: str) -> None:
    with pytest.raises(EngineStartError, match=words):
        mode_flags(options, cpu=True)
    with pytest.raises(EngineStartError, match=words):
        check_mode(options, cpu=True)


PSD = VllmOptions("m", "n", mode="psd", draft_model="d")


def test_on_gpus_two_batches_are_the_same_on_vllms_other_runner() -> None:
    flags, on_cpus = mode_flags(PSD, cpu=False), mode_flags(PSD, cpu=True)
    assert flags[:2] == on_cpus[:2], "a draft model on one device"
    assert "--async-scheduling" in flags
    assert "--no-async-scheduling" not in flags
    pairs = dict(pairwise(flags))
    assert pairs["--distributed-executor-backend"] == classes.EXECUTOR
    assert pairs["--scheduler-cls"] == classes.RANKS_V2.scheduler
    assert pairs["--worker-cls"] == classes.RANKS_V2.verifier


@pytest.mark.parametrize("mode", ["ar", "sd", "psd"])
def test_nothing_on_gpus_is_eager_unless_asked(mode: str) -> None:
    options = VllmOptions("m", "n", mode=mode, draft_model="d")  # type: ignore[arg-type]
    assert not any("eager" in flag or "compil" in flag for flag in default_flags(options, cpu=False))


@pytest.mark.parametrize("cpu", [True, False])
def test_an_engine_may_have_classes_of_its_own(cpu: bool) -> None:
    own = classes.Ranks("its.Verifier", "its.Drafter", "its.Scheduler", "V2")
    pairs = dict(pairwise(mode_flags(replace(PSD, ranks=own), cpu=cpu)))
    assert (pairs["--worker-cls"], pairs["--scheduler-cls"]) == ("its.Verifier", "its.Scheduler")
    assert "--async-scheduling" in mode_flags(replace(PSD, ranks=own), cpu=cpu)
    check_mode(replace(PSD, ranks=own), cpu=cpu)


@pytest.mark.parametrize("cpu", [True, False])
def test_all_modes_run_on_both_platforms(cpu: bool) -> None:
    for mode in ("ar", "sd", "psd"):
        check_mode(replace(PSD, mode=mode), cpu=cpu)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "cpu", "words"),
    [
        (replace(PSD, ranks=classes.Ranks("its.Verifier")), False, "V1 model runner, as these, are for its CPU build"),
        (replace(PSD, link="nccl"), True, "--link nccl is for GPUs: --link host"),
        (replace(PSD, drafter_gpu_memory_utilization=0.5), True, "--drafter-gpu-memory-utilization is for GPUs"),
        (replace(PSD, drafter_cpus=(1,)), False, "--verifier-cpus and --drafter-cpus are for CPUs"),
        (replace(PSD, mode="ar", verifier_cpus=(1,)), False, "--verifier-cpus and --drafter-cpus are for CPUs"),
    ],
)
def test_what_a_platform_has_not_is_refused(options: VllmOptions, cpu: bool, words: str) -> None:
    with pytest.raises(EngineStartError, match=words):
        check_mode(options, cpu=cpu)
    check_mode(options, cpu=not cpu)


@pytest.mark.parametrize(
    ("strategy", "cpu", "words"),
    [
        (Strategy("pearl"), True, "--num-speculative-tokens 2 or more"),
        (Strategy("pearl"), False, "that of CPUs"),
        (Strategy(admission="tetris", extra=1), True, "leaves no draft to verify"),
    ],
)
def test_a_strategy_that_does_not_go_is_refused(strategy: Strategy, cpu: bool, words: str) -> None:
    with pytest.raises(EngineStartError, match=words):
        check_mode(replace(PSD, strategy=strategy), cpu=cpu)
    check_mode(replace(PSD, mode="ar", strategy=strategy), cpu=cpu)


def test_drafts_go_from_gpu_to_gpu_unless_asked() -> None:
    assert (PSD.link_on(cpu=True), PSD.link_on(cpu=False)) == ("host", "nccl")
    assert replace(PSD, link="host").link_on(cpu=False) == "host"


def test_options_become_flags() -> None:
    flags = default_flags(VllmOptions("m", "n", tensor_parallel_size=2, max_num_seqs=5), cpu=False)
    pairs = dict(pairwise(flags))
    assert pairs["--model"] == "m"
    assert pairs["--served-model-name"] == "n"
    assert pairs["--tensor-parallel-size"] == "2"
    assert pairs["--max-num-seqs"] == "5"
    assert "--worker-cls" not in flags
    assert "--worker-cls" in default_flags(VllmOptions("m", "n"), cpu=True)


def test_memory_is_a_flag_that_the_platforms_own_comes_before() -> None:
    flags = default_flags(VllmOptions("m", "n", kv_cache_gib=0.5), cpu=True)
    assert [b for a, b in pairwise(flags) if a == "--kv-cache-memory-bytes"][-1] == str(512 * 1024**2)
    assert "--kv-cache-memory-bytes" not in default_flags(VllmOptions("m", "n"), cpu=False)


def test_a_model_folder_must_have_a_model(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match=r"model not found.*config\.json"):
        check_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    check_model(str(tmp_path))


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "../nothing", "a/b/c"])
def test_a_path_that_is_none_is_said_to_be_missing(name: str) -> None:
    with pytest.raises(EngineStartError, match="model not found: there is no folder"):
        check_model(name)


def test_a_name_is_looked_for_in_the_cache_alone_when_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: True)
    with pytest.raises(EngineStartError, match="no-such/model is no folder here and not in the Hugging Face cache"):
        check_model("no-such/model")


@pytest.mark.parametrize(("given", "names"), [(None, ("m",)), ("n", ("n",)), (["a", "b"], ("a", "b"))])
def test_served_names(given: object, names: tuple[str, ...]) -> None:
    parsed = vllm_args.Namespace(served_model_name=given, model="m", lora_modules=None)
    assert vllm_args.served_names(parsed) == names
    parsed.lora_modules = [vllm_args.Namespace(name="adapter")]
    assert vllm_args.served_names(parsed) == (*names, "adapter")


@pytest.mark.parametrize("mode", ["ar", "sd", "psd"])
@pytest.mark.parametrize("cpu", [True, False])
def test_code_that_comes_with_a_model_is_trusted_only_when_asked(mode: str, cpu: bool) -> None:
    options = VllmOptions("m", "n", mode=mode, draft_model="d")  # type: ignore[arg-type]
    trusted = [flag for flag in default_flags(options, cpu=cpu) if "trust" in flag]
    assert trusted == ["--trust-request-chat-template"]  # run in a sandbox
