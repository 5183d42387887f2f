"""Parts that need vLLM and no engine."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from integration.worker.engine.real_engine import chat, completion
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.exceptions import VLLMValidationError
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams
from vllm.triton_utils.dispatcher import register_kernels
from vllm.v1.engine.exceptions import EngineGenerateError
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

from producer.record.models import Row
from worker.engine import vllm_rows
from worker.engine.parameters import BEAM_SEARCH, Abilities
from worker.engine.protocol import EngineDead
from worker.engine.vllm_cpu_worker import EXPAND_KERNEL, expand, expands_rightly
from worker.engine.vllm_rows import Completion, answer_of, fault_of, parse
from worker.strategies.sources import JOB


def test_vllms_own_expansion_is_still_wrong_and_ours_is_right() -> None:
    """When the first assertion fails vLLM has been put right: then drop our replacement."""
    current_platform.register_triton_kernel_overrides()
    assert not expands_rightly()
    register_kernels({EXPAND_KERNEL: expand})
    assert expands_rightly()


def test_expansion_replaces() -> None:
    output = torch.empty(4)
    expand(output, torch.tensor([0.0, 0.7, 5.0]), torch.tensor([1, 1, 4], dtype=torch.int32), 0, 1)
    assert output.tolist() == [1.0, 5.0, 5.0, 5.0]


def test_vllms_own_sampler_still_needs_a_row_for_top_k() -> None:
    """When this fails vLLM has been put right: then `CpuRunner._sample` need not look for drafts."""
    with pytest.raises(RuntimeError):
        apply_top_k_top_p(torch.empty(0, 8), torch.empty(0, dtype=torch.int32), None)


def test_it_is_written_down_what_every_parameter_does() -> None:
    """When this fails vLLM has a new parameter: decide whether rows may have it, and add it to the matrix."""
    matrix = (Path(vllm_rows.__file__).parent / "README.md").read_text(encoding="utf-8")
    written = set(re.findall(r"`(\w+)`", matrix))
    fields = set(ChatCompletionRequest.model_fields) | set(Completion.model_fields)
    assert fields - written == set()
    assert fields >= BEAM_SEARCH


@pytest.mark.parametrize("row", [completion(), chat()], ids=["completion", "chat"])
def test_the_engine_is_told_a_row_s_job_and_nothing_else(row: Row) -> None:
    def told(abilities: Abilities, job: str, **body: Any) -> tuple[Any, SamplingParams]:
        asked = replace(row, body={**row.body, **body})
        params = parse(asked, ["target"], abilities, job).to_sampling_params(max_tokens=16, default_sampling_params={})
        extra, params.extra_args = params.extra_args, None
        return extra, params

    extended, by_the_row = Abilities(two_batches=True, extensions=True), {JOB: "another's", "mine": 1}
    extra, params = told(Abilities(two_batches=True), "j1")
    assert extra == {JOB: "j1"}
    assert told(extended, "j1", vllm_xargs=by_the_row)[0] == {JOB: "j1", "mine": 1}, "no row names a job itself"
    assert told(extended, "", vllm_xargs=by_the_row)[0] == {"mine": 1}
    for silent in (told(Abilities(two_batches=True), ""), told(Abilities(), "j1")):
        assert silent[0] is None
        assert repr(silent[1]) == repr(params)


def test_an_answer_that_was_cut_off_is_none() -> None:
    """What vLLM calls an answer when its engine is told to stop."""
    with pytest.raises(EngineDead):
        answer_of(SimpleNamespace(choices=[SimpleNamespace(finish_reason="abort")]))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("wrong"), "invalid_request"),
        (VLLMValidationError("wrong", parameter="x"), "invalid_request"),
        (RecursionError("deep"), "internal_error"),
        (KeyError("odd"), "internal_error"),
    ],
)
def test_whatever_vllm_raises_is_a_row_error(error: Exception, code: str) -> None:
    assert fault_of(error).fault.code == code
    wrapped = EngineGenerateError()
    wrapped.__cause__ = error
    assert fault_of(wrapped).fault.code == code
