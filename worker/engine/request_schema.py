"""What a row's parameters may be: a JSON schema made from vLLM's request classes, for producers. Imports vLLM.

`make schema` writes it to `producer/intake/request_schema.json`, which is committed: a producer has no vLLM. A test
says when the file is stale. It refuses nothing that vLLM takes (`lax_schema.py`), with one exception: a `max_tokens`
beside `max_completion_tokens`, which vLLM would not look at, must be in its range all the same. What only whole
requests show (a `top_logprobs` without `logprobs`) is left to the worker: a job's defaults may complete a row.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vllm
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

from producer.intake.parameters import SCHEMA_FILE
from producer.intake.requests import PROMPT_MEMBERS
from producer.record.models import CHAT_URL, COMPLETIONS_URL
from worker.engine.lax_schema import Schema, bounded, relax
from worker.engine.vllm_rows import Completion

_AT_LEAST_ONE = {"minimum": 1}
_PENALTY = {"minimum": -2, "maximum": 2}
_LOGPROBS = {"minimum": -1}
#: Ranges that vLLM looks at after its classes: `SamplingParams._verify_args` in vllm/sampling_params.py, and for
#: logprobs the classes' own `check_logprobs`. Not those that environment variables of the worker may change, nor
#: those that hold only beside other parameters (completions may have `max_tokens` 0 with `echo`).
RANGES: Mapping[str, Mapping[str, Any]] = {
    "n": _AT_LEAST_ONE,
    "temperature": {"minimum": 0, "maximum": 2},
    "top_p": {"exclusiveMinimum": 0, "maximum": 1},
    "top_k": {"minimum": -1},
    "min_p": {"minimum": 0, "maximum": 1},
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "repetition_penalty": {"exclusiveMinimum": 0},
    "max_tokens": _AT_LEAST_ONE,
    "max_completion_tokens": _AT_LEAST_ONE,
    "min_tokens": {"minimum": 0},
    "logprobs": _LOGPROBS,
    "top_logprobs": _LOGPROBS,
    "prompt_logprobs": _LOGPROBS,
    "thinking_token_budget": {"minimum": -1},
    "stop": {"minLength": 1},
    "bad_words": {"minLength": 1},
}
_RANGES_OF_COMPLETIONS: Mapping[str, Mapping[str, Any]] = {"max_tokens": {"minimum": 0}}

_CLASSES: Mapping[str, Any] = {CHAT_URL: ChatCompletionRequest, COMPLETIONS_URL: Completion}


def request_schema() -> dict[str, Any]:
    """The parameters of each URL: a JSON schema (draft 7) for each, without references.

    What a row asks with (`messages`, `prompt`) is not among them: intake checks it by itself.
    """
    return {
        "about": "Made by `make schema` from vLLM's request classes (worker/engine/request_schema.py). Do not edit.",
        "vllm": vllm.__version__.partition("+")[0],
        "urls": {url: _parameters(url) for url in _CLASSES},
    }


def text() -> str:
    """The file, as it is committed: one parameter a line, in the order of the alphabet."""
    made = request_schema()
    urls = ",\n".join(f"    {json.dumps(url)}: {{\n{_lines(of)}\n    }}" for url, of in sorted(made["urls"].items()))
    head = "".join(f"  {json.dumps(name)}: {json.dumps(made[name])},\n" for name in ("about", "vllm"))
    return f'{{\n{head}  "urls": {{\n{urls}\n  }}\n}}\n'


def _lines(parameters: dict[str, Schema]) -> str:
    ordered = sorted(parameters.items())
    return ",\n".join(f"      {json.dumps(name)}: {json.dumps(schema, sort_keys=True)}" for name, schema in ordered)


def _parameters(url: str) -> dict[str, Schema]:
    whole = _CLASSES[url].model_json_schema()
    ranges = {**RANGES, **(_RANGES_OF_COMPLETIONS if url == COMPLETIONS_URL else {})}
    return {
        name: relax(bounded(schema, ranges.get(name, {})), whole.get("$defs", {}))
        for name, schema in whole["properties"].items()
        if name != PROMPT_MEMBERS[url]
    }


if __name__ == "__main__":
    Path(SCHEMA_FILE).write_text(text(), encoding="utf-8")
