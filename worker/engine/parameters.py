"""Request parameters that an engine would ignore: refused by name, before it sees the row. Pure.

vLLM's request classes have more fields than any engine heeds. Some need a flag at the engine's start, some belong to
other end points, some mean nothing beside others; vLLM drops most of these in silence. A row that has one asks for
something that it would not get, so it is a row error. What each parameter does is listed in this folder's README.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from worker.engine.protocol import RowError


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine was started with, as far as a row may ask for it; each is off unless a flag is given.

    Attributes:
        two_batches: it is the two-batch engine, which samples without vLLM's budget of thinking tokens.
        priorities: `--scheduling-policy priority`.
        watermarks: `--watermark-config`.
        kv_transfer: `--kv-transfer-config`.
        ec_transfer: `--ec-transfer-config`.
        extensions: `--logits-processors`.
        routed_experts: `--enable-return-routed-experts`.
        reasoning_parser: `--reasoning-parser`.
    """

    two_batches: bool = False
    priorities: bool = False
    watermarks: bool = False
    kv_transfer: bool = False
    ec_transfer: bool = False
    extensions: bool = False
    routed_experts: bool = False
    reasoning_parser: bool = False


#: Parameters that do nothing without a flag: what else they may be then, the ability, and the flag.
_WITH_A_FLAG: Mapping[str, tuple[Any, str, str]] = {
    "priority": (0, "priorities", "--scheduling-policy priority"),
    "watermarking": (False, "watermarks", "--watermark-config"),
    "kv_transfer_params": ({}, "kv_transfer", "--kv-transfer-config"),
    "ec_transfer_params": ({}, "ec_transfer", "--ec-transfer-config"),
    "vllm_xargs": ({}, "extensions", "--logits-processors"),
    "routed_experts_prompt_start": (0, "routed_experts", "--enable-return-routed-experts"),
    "include_reasoning": (True, "reasoning_parser", "--reasoning-parser"),
}
_RENDERING = "it belongs to another end point of vLLM, which renders prompts"
_TEXT_ONLY = "prompts are text or token ids only"
#: Parameters that no engine here heeds: what else they may be then, and why.
_NEVER: Mapping[str, tuple[Any, str]] = {
    "return_token_offsets": (False, _RENDERING),
    "mm_payload": ("tensors", _RENDERING),
    "return_mm_kwargs": (None, _RENDERING),
    "prompt_embeds": (None, _TEXT_ONLY),
    "media_io_kwargs": ({}, _TEXT_ONLY),
    "mm_processor_kwargs": ({}, _TEXT_ONLY),
}
#: Arguments of a chat template that vLLM drops.
_RESERVED = frozenset({"chat_template", "tokenize"})
#: All that vLLM's beam search heeds: it is a loop in the front end that asks for single tokens and their
#: probabilities, and reads nothing else of the row.
BEAM_SEARCH = frozenset(
    {
        "model",
        "messages",
        "prompt",
        "use_beam_search",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "length_penalty",
        "ignore_eos",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "chat_template",
        "chat_template_kwargs",
        "add_generation_prompt",
        "continue_final_message",
        "add_special_tokens",
        "documents",
        "reasoning_effort",
        "truncate_prompt_tokens",
        "truncation_side",
        "cache_salt",
        "user",
        "request_id",
        "session_id",
        "return_token_ids",
        "return_tokens_as_token_ids",
        "return_prompt_text",
        "stream",
        "stream_interval",
    }
)
#: Values beside beam search that ask for nothing: vLLM's defaults, and what switches a parameter off. (A `seed` has
#: no such value: 0 is one like any other.)
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "min_tokens": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "spaces_between_special_tokens": (True,),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none",),
    "parallel_tool_calls": (True,),
    "include_reasoning": (True,),
    "thinking_token_budget": (-1,),
    "watermarking": (False,),
    "priority": (0,),
    "routed_experts_prompt_start": (0,),
    "return_token_offsets": (False,),
    "mm_payload": ("tensors",),
}


def check_parameters(body: Mapping[str, Any], abilities: Abilities) -> None:
    """Refuse what this engine would ignore. A parameter that is null, or says what is so anyway, passes.

    Args:
        body: of a row, with known parameters only.
        abilities: of the engine.

    Raises:
        RowError: `unsupported_parameter`, naming the first one and what it needs.
    """
    for fault in _faults(body, abilities):
        raise RowError("unsupported_parameter", fault)


def _faults(body: Mapping[str, Any], abilities: Abilities) -> Iterator[str]:
    given = {name: value for name, value in body.items() if value is not None}
    for name, (neutral, ability, flag) in _WITH_A_FLAG.items():
        if given.get(name, neutral) != neutral and not getattr(abilities, ability):
            yield f"{name} does nothing in this worker: it needs --engine-args '{flag}'"
    for name, (nothing, why) in _NEVER.items():
        if given.get(name, nothing) != nothing:
            yield f"{name} is not supported: {why}"
    arguments = given.get("chat_template_kwargs")
    # What is no object is for vLLM's class to refuse.
    for name in _RESERVED.intersection(arguments if isinstance(arguments, dict) else ()):
        yield f"chat_template_kwargs cannot hold {name}: vLLM would not heed it"
    if abilities.two_batches and given.get("thinking_token_budget", -1) != -1:
        yield "thinking_token_budget is not supported in mode psd: --mode ar or --mode sd"
    if given.get("use_beam_search"):
        yield from (f"beam search does not heed {name}" for name in _others(given, BEAM_SEARCH))
    elif given.get("length_penalty", 1) != 1:
        yield "length_penalty does nothing without use_beam_search"


def _others(given: Mapping[str, Any], allowed: Collection[str]) -> Iterator[str]:
    """What is asked for beside what is allowed; empty lists, empty objects and neutral values ask for nothing."""
    for name, value in given.items():
        if name not in allowed and not any(_same(value, neutral) for neutral in ([], {}, *_NEUTRAL.get(name, ()))):
            yield name


def _same(value: object, neutral: object) -> bool:
    """Equal as JSON: to Python `false` is 0 and `true` is 1 as well."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
