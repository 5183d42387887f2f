"""From options to flags, and what is found out before vLLM is asked."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from worker.engine import vllm_args
from worker.engine.protocol import EngineStartError
from worker.engine.vllm_args import VllmOptions, check_mode, check_model, default_flags, mode_flags
from worker.minedraft import classes


def test_plain_decoding_needs_no_flags_of_its_own() -> None:
    options = VllmOptions("m", "n", draft_model="d")
    assert mode_flags(options) == []
    assert options.models == ["m"]


def test_speculative_decoding_is_vllms_own() -> None:
    options = VllmOptions("m", "n", mode="sd", draft_model="d", num_speculative_tokens=4)
    flag, value = mode_flags(options)
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
    flags = mode_flags(options)
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
        mode_flags(options)
    with pytest.raises(EngineStartError, match=words):
        check_mode(options, cpu=True)


def test_two_batches_need_vllms_cpu_build() -> None:
    check_mode(VllmOptions("m", "n", mode="psd", draft_model="d"), cpu=True)
    check_mode(VllmOptions("m", "n", mode="sd", draft_model="d"), cpu=False)
    with pytest.raises(EngineStartError, match="CPU build only"):
        check_mode(VllmOptions("m", "n", mode="psd", draft_model="d"), cpu=False)


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
