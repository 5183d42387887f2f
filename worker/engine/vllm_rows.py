"""Rows in vLLM's words and back: its request classes, its responses and its errors. Imports vLLM.

What a row may say is decided by vLLM's own classes, so that a row means here what it means to `vllm serve`, with
two exceptions: a parameter that vLLM would ignore is refused (`parameters.py`), and a completion without `max_tokens`
may fill the context (vLLM's class says 16).
"""

import json
import logging
from collections.abc import Collection
from http import HTTPStatus
from itertools import takewhile
from typing import Any

from pydantic import ValidationError
from vllm.config import ModelConfig
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.renderers import TokenizeParams
from vllm.renderers.chat_utils import ChatTemplateResolutionError, has_non_text_content
from vllm.v1.engine.exceptions import EngineGenerateError

from producer.record.models import CHAT_URL, TARGET, Answer, Row
from worker.engine.parameters import Abilities, check_parameters
from worker.engine.protocol import EngineDead, RowError, TransientError
from worker.engine.rows import check_fields, check_row, one_line
from worker.strategies.sources import JOB

logger = logging.getLogger(__name__)

#: A `max_tokens` above every context. vLLM's completions need a number, and lower it to what the context has left.
TO_THE_END = 2**62


class Completion(CompletionRequest):  # type: ignore[misc] # vLLM's types are not read
    """A completion that ends at the end of the context when it does not say where."""

    max_tokens: int | None = TO_THE_END

    def build_tok_params(self, model_config: ModelConfig) -> TokenizeParams:
        """How to tokenize the prompt: without room set aside for an answer of unknown length."""
        if self.max_tokens == TO_THE_END:
            return self.model_copy(update={"max_tokens": 0}).build_tok_params(model_config)
        return super().build_tok_params(model_config)


def _known(request_class: type[Any]) -> frozenset[str]:
    fields = request_class.model_fields
    return frozenset(fields) | {field.alias for field in fields.values() if field.alias}


_SHAPES = ("str", "int", "float", "bool")
_CHAT_FIELDS, _COMPLETION_FIELDS = _known(ChatCompletionRequest), _known(Completion)


def parse(row: Row, served: Collection[str], abilities: Abilities, job: str = "") -> ChatCompletionRequest | Completion:
    """The row as vLLM's request.

    Args:
        row: any row.
        served: the names of the model and of its adapters.
        abilities: what the engine was started with.
        job: its job, which only the two-batch engine is told; "": not known.

    Raises:
        RowError: the row is at fault.
    """
    check_row(row, served)
    chat = row.url == CHAT_URL
    check_fields(row, _CHAT_FIELDS if chat else _COMPLETION_FIELDS)
    check_parameters(row.body, abilities)
    if has_non_text_content(row.body.get("messages")):
        raise RowError("unsupported_content", "a message holds an image, audio or other media: only text is supported")
    # Without a model vLLM answers with the one it serves.
    body = {name: value for name, value in row.body.items() if (name, value) != ("model", TARGET)}
    try:
        request = (ChatCompletionRequest if chat else Completion).model_validate(body)
    except Exception as error:
        raise fault_of(error) from error
    if abilities.two_batches:
        _tell_job(request, job)
    return request


def _tell_job(request: ChatCompletionRequest | Completion, job: str) -> None:
    """Put the job where the engine looks for it, after parsing, so that no row names a job of its own.

    vLLM 0.32 asks for names of its own in there and for no others, and hashes blocks of a prompt without them
    (`v1/core/kv_cache_utils.py`), so it changes nothing else.
    """
    extra = {name: value for name, value in (request.vllm_xargs or {}).items() if name != JOB}
    request.vllm_xargs = {**extra, JOB: job} if job else extra or None


def abilities_of(config: Any, *, reasoning_parser: str, two_batches: bool) -> Abilities:
    """What rows may ask of an engine with this `VllmConfig`."""
    return Abilities(
        two_batches=two_batches,
        priorities=config.scheduler_config.policy == "priority",
        watermarks=config.watermark_config is not None,
        kv_transfer=config.kv_transfer_config is not None,
        ec_transfer=config.ec_transfer_config is not None,
        extensions=bool(config.model_config.logits_processors),
        routed_experts=bool(config.aux_output_config.enable_return_routed_experts),
        reasoning_parser=bool(reasoning_parser),
    )


def answer_of(response: Any) -> Answer:
    """vLLM's response as an answer.

    Raises:
        RowError: it is an error response.
        EngineDead: the engine was stopped before the answer was complete.
    """
    if isinstance(response, ErrorResponse):
        raise _fault(response)
    if any(choice.finish_reason == "abort" for choice in response.choices):
        # What vLLM says of every unfinished request when it is told to stop: the text is cut off anywhere.
        raise EngineDead("the engine was stopped before the answer was complete")
    body = json.loads(response.model_dump_json())  # through JSON: no NaN or infinity survives
    return Answer(body, response.usage.prompt_tokens, response.usage.completion_tokens or 0)


def fault_of(error: Exception) -> RowError:
    """What an exception of vLLM's parsing or serving code says about the row."""
    if isinstance(error, RowError):
        return error
    if isinstance(error, EngineGenerateError) and isinstance(error.__cause__, Exception):
        return fault_of(error.__cause__)
    if isinstance(error, ValidationError):
        return RowError("invalid_request", _validation_message(error))
    if isinstance(error, ChatTemplateResolutionError):
        return RowError("no_chat_template", "the model has no chat template: use /v1/completions, or --chat-template")
    return _fault(create_error_response(error), error)


def _fault(response: ErrorResponse, error: Exception | None = None) -> RowError:
    status, message = response.error.code, one_line(response.error.message)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.debug("vLLM failed on a row", exc_info=error)
        return TransientError("internal_error", one_line(f"vLLM failed on this row: {message or error!r}"))
    if "maximum context length" in message:
        return RowError("context_length_exceeded", message)
    return RowError("invalid_request", message)


def _validation_message(error: ValidationError) -> str:
    """What is wrong where; without the row's text, which pydantic repeats."""
    wrong: dict[str, list[str]] = {}
    for mistake in error.errors(include_url=False, include_input=False, include_context=False):
        # Of a value that may have several shapes pydantic reports what each of them misses, under the shape's name.
        place = ".".join(str(part) for part in takewhile(_is_place, mistake["loc"]))
        wrong.setdefault(place, []).append(mistake["msg"])
    return one_line("; ".join(f"{place}: {', or '.join(dict.fromkeys(told))}" for place, told in wrong.items()))


def _is_place(part: int | str) -> bool:
    """Whether part of a pydantic location is a field or an index, not the name of a shape (`str`, `list[int]`)."""
    return isinstance(part, int) or (part.islower() and part.isidentifier() and part not in _SHAPES)
