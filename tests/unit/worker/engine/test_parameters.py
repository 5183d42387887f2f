"""What an engine would ignore is refused by name."""

from typing import Any

import pytest

from worker.engine.parameters import BEAM_SEARCH, Abilities, check_parameters
from worker.engine.protocol import RowError


def refusal(body: dict[str, Any], **abilities: bool) -> str:
    """Why the row is refused."""
    with pytest.raises(RowError) as refused:
        check_parameters(body, Abilities(**abilities))
    assert refused.value.fault.code == "unsupported_parameter"
    return refused.value.fault.message


@pytest.mark.parametrize(
    ("body", "ability", "flag"),
    [
        ({"priority": 1}, "priorities", "--scheduling-policy priority"),
        ({"watermarking": True}, "watermarks", "--watermark-config"),
        ({"kv_transfer_params": {"prompt_token_ids": [1]}}, "kv_transfer", "--kv-transfer-config"),
        ({"ec_transfer_params": {"a": 1}}, "ec_transfer", "--ec-transfer-config"),
        ({"vllm_xargs": {"a": 1}}, "extensions", "--logits-processors"),
        ({"routed_experts_prompt_start": 3}, "routed_experts", "--enable-return-routed-experts"),
        ({"include_reasoning": False}, "reasoning_parser", "--reasoning-parser"),
    ],
)
def test_what_needs_a_flag_is_refused_without_it(body: dict[str, Any], ability: str, flag: str) -> None:
    assert flag in refusal(body)
    check_parameters(body, Abilities(**{ability: True}))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"return_token_offsets": True}, "return_token_offsets is not supported: it belongs to another end point"),
        ({"mm_payload": "none"}, "mm_payload"),
        ({"return_mm_kwargs": False}, "return_mm_kwargs"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds is not supported: prompts are text"),
        ({"media_io_kwargs": {"image": {}}}, "media_io_kwargs"),
        ({"mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
        ({"length_penalty": 2.0}, "length_penalty does nothing without use_beam_search"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "cannot hold chat_template"),
        ({"chat_template_kwargs": {"tokenize": True}}, "cannot hold tokenize"),
    ],
)
def test_what_no_engine_heeds_is_refused(body: dict[str, Any], words: str) -> None:
    assert words in refusal(body)


def test_two_batches_have_no_budget_of_thinking_tokens() -> None:
    check_parameters({"thinking_token_budget": 5}, Abilities())
    check_parameters({"thinking_token_budget": -1}, Abilities(two_batches=True))
    assert "mode psd" in refusal({"thinking_token_budget": 0}, two_batches=True)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"temperature": 0, "user": "me", "session_id": "s", "request_id": "r", "stream_interval": 3},
        {
            "priority": 0,
            "watermarking": False,
            "kv_transfer_params": {},
            "vllm_xargs": None,
            "include_reasoning": True,
            "mm_payload": "tensors",
            "return_token_offsets": False,
            "length_penalty": 1.0,
            "chat_template_kwargs": {"enable_thinking": False},
        },
        {"chat_template_kwargs": None, "priority": None},
        *({"chat_template_kwargs": value} for value in ("tokenize", 5, True, ["tokenize"], [[1]])),  # vLLM's to refuse
    ],
)
def test_what_says_nothing_else_than_what_is_so_passes(body: dict[str, Any]) -> None:
    check_parameters(body, Abilities())


def test_beam_search_goes_with_what_it_heeds() -> None:
    beams = {"use_beam_search": True, "n": 3, "length_penalty": 0.5, "max_tokens": 5, "temperature": 0}
    check_parameters({**beams, "stop": [], "logprobs": None, "stream": False, "logit_bias": {}}, Abilities())
    for name, value in [
        ("stop", "x"),
        ("top_p", 0.5),
        ("seed", 0),
        ("logprobs", 2),
        ("tools", [{}]),
        ("min_tokens", 2),
    ]:
        assert name not in BEAM_SEARCH
        assert refusal({**beams, name: value}) == f"beam search does not heed {name}"


@pytest.mark.parametrize(
    "neutral",
    [
        {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "min_tokens": 0, "logprobs": False, "top_logprobs": 0, "echo": False},
        {"top_k": -1, "top_p": 1, "repetition_penalty": 1.0, "presence_penalty": 0, "frequency_penalty": 0.0},
        {"response_format": {"type": "text"}, "tool_choice": "none", "tools": [], "parallel_tool_calls": True},
        {"spaces_between_special_tokens": True, "stream_interval": 3, "include_reasoning": True, "bad_words": []},
    ],
)
def test_neutral_values_pass_beside_beam_search(neutral: dict[str, Any]) -> None:
    check_parameters({"use_beam_search": True, **neutral}, Abilities())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 0),
        ("seed", False),
        ("logprobs", 0),
        ("top_k", 1),
        ("min_p", 1),
        ("repetition_penalty", 0),
        ("spaces_between_special_tokens", False),
        ("response_format", {"type": "json_object"}),
        ("parallel_tool_calls", False),
    ],
)
def test_what_is_neutral_for_another_parameter_is_refused_beside_beam_search(name: str, value: object) -> None:
    assert refusal({"use_beam_search": True, name: value}) == f"beam search does not heed {name}"
