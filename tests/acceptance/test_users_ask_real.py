"""What users of such tools ask for, where only a model can tell: items 3, 7, 8 and 9.

One worker, in two overlapped batches on tiny models, answers all of it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shell import Shell, shell_in

from worker.lab.tiny import build_tiny_model

#: Its engine takes a minute to start, and what it shows other tests show, too, item by item.
pytestmark = pytest.mark.full

CONTEXT = 512
FLAGS = (f"--engine-args=--max-model-len {CONTEXT}", "--kv-cache-gib", "0.25")
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("asked")
    target, draft = (build_tiny_model(folder / f"tiny{seed}", seed=seed) for seed in range(2))
    with shell_in(folder) as shell:
        models = ("--model", str(target), "--draft-model", str(draft), "--served-model-name", "tiny")
        shell.worker("--mode", "psd", *models, *FLAGS).ready(240)
        yield shell


def answered(
    shell: Shell, *rows: dict[str, Any], options: tuple[str, ...] = ("--model", "tiny")
) -> list[dict[str, Any]]:
    """The results of a job with these rows, in their order."""
    job = shell.submit("-", *options, text="".join(f"{json.dumps(row)}\n" for row in rows))["job_id"]
    ended = shell.run("producer", "watch", job, seconds=240)
    assert ended.returncode in (0, 1), ended.stderr
    return shell.results(job)


def body(result: dict[str, Any]) -> dict[str, Any]:
    assert result["error"] is None, result
    return result["response"]["body"]


def text(result: dict[str, Any]) -> str:
    choice = body(result)["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


def test_03_what_only_a_model_can_tell_is_a_row_error_too(stand: Shell) -> None:
    """Over-long prompts, `max_tokens` 0 or over the context."""
    rows = [
        {"prompt": "word " * 2000},
        {"messages": [{"role": "user", "content": "word " * 2000}]},
        {"messages": HELLO, "max_tokens": 0},
        {"messages": HELLO, "max_tokens": CONTEXT + 1},
        {"messages": HELLO, "max_tokens": 2},
    ]
    *bad, good = answered(stand, *rows)
    assert [row["error"]["line"] for row in bad] == [1, 2, 3, 4]
    assert all(row["error"]["message"] for row in bad)
    assert body(good)["usage"]["completion_tokens"] == 2


def test_07_max_tokens_missing_is_not_16_and_a_chat_without_a_template_is_an_error(stand: Shell) -> None:
    """An answer may fill the context. Chat without a chat template: a clear error, not raw text."""
    unlimited = {"ignore_eos": True, "temperature": 0}
    for result in answered(stand, {"prompt": "x", **unlimited}, {"messages": HELLO, **unlimited}):
        assert body(result)["usage"]["total_tokens"] == CONTEXT

    bare = build_tiny_model(stand.folder / "bare")
    _forget_template(bare)
    worker = stand.worker("--mode", "ar", "--model", str(bare), "--served-model-name", "bare", *FLAGS).ready(240)
    chat, plain = answered(stand, {"messages": HELLO}, {"prompt": "x", "max_tokens": 2}, options=("--model", "bare"))
    assert chat["error"]["code"] == "no_chat_template"
    assert body(plain)["usage"]["completion_tokens"] == 2
    worker.terminate(60)


def test_08_what_a_row_may_ask_for_is_heeded_or_refused_by_name(stand: Shell) -> None:
    """Templates per job and per row; sampling and structured output per row; LoRA, multimodal, pooling, beam search and
    parsers supported or refused by name. (Each parameter alone: worker/engine/README.md, "The matrix".)"""
    greedy = {"messages": HELLO, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    template, arguments = "{{ mood }}: {{ messages[0].content }}", {"mood": "merry"}
    (stand.folder / "chat.jinja").write_text(template)
    flags = ("--model", "tiny", "--chat-template", "chat.jinja", "--chat-template-kwargs", json.dumps(arguments))
    (of_job,) = answered(stand, greedy, options=flags)
    own = {"chat_template": template, "chat_template_kwargs": arguments}
    of_row, of_model, sad = answered(
        stand, greedy | own, greedy, greedy | own | {"chat_template_kwargs": {"mood": "sad"}}
    )
    assert text(of_job) == text(of_row)
    assert len({text(of_job), text(of_model), text(sad)}) == 3

    sampling = {
        **{"temperature": 0.8, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "seed": 5, "n": 2, "stop": ["\n\n"]},
        **{"presence_penalty": 0.1, "frequency_penalty": 0.1, "repetition_penalty": 1.1},
        **{"logprobs": True, "top_logprobs": 2, "max_tokens": 6},
    }
    schema = {"name": "answer", "schema": {"type": "string", "enum": ["yes", "no"]}}
    structured = {"response_format": {"type": "json_schema", "json_schema": schema}, "max_tokens": 20}
    beams = {"prompt": "Hello", "use_beam_search": True, "n": 2, "max_tokens": 3, "temperature": 0}
    sampled, forced, searched = answered(
        stand, {"messages": HELLO, **sampling}, {"messages": HELLO, **structured}, beams
    )
    assert [len(choice["logprobs"]["content"][0]["top_logprobs"]) for choice in body(sampled)["choices"]] == [2, 2]
    assert json.loads(text(forced)) in ("yes", "no")
    assert len(body(searched)["choices"]) == 2

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    refused = {
        "LoRA": ({"prompt": "x", "model": "my-lora"}, "my-lora"),
        "multimodal": ({"messages": [{"role": "user", "content": [image]}]}, "image"),
        "pooling": ({"method": "POST", "url": "/v1/embeddings", "body": {"input": "x"}}, "/v1/completions"),
        "tools without a parser": ({"messages": HELLO, "tools": [tool]}, "tool"),
        "reasoning without a parser": ({"messages": HELLO, "include_reasoning": False}, "reasoning"),
    }
    results = answered(stand, *(row for row, _ in refused.values()), {"prompt": "x", "max_tokens": 1})
    for result, (what, (_, named)) in zip(results, refused.items(), strict=False):
        assert result["error"], what
        assert named in result["error"]["message"], what


def test_09_a_seed_gives_the_same_text_however_rows_are_batched(stand: Shell) -> None:
    """Alone, in another order, and among others."""
    seeded = [
        {
            "custom_id": f"s{n}",
            "prompt": f"Say {n % 3}",
            "temperature": 0.9,
            "seed": n,
            "max_tokens": 16,
            "ignore_eos": True,
        }
        for n in range(12)
    ]
    others = [{"custom_id": f"o{n}", "prompt": f"Tell {n}", "max_tokens": 5 + n} for n in range(24)]
    together = {row["custom_id"]: text(row) for row in answered(stand, *seeded)}
    mixed = [*others[:12], *(row for pair in zip(others[12:], reversed(seeded), strict=True) for row in pair)]
    among = {row["custom_id"]: text(row) for row in answered(stand, *mixed)}
    (alone,) = answered(stand, seeded[3])
    assert text(alone) == together["s3"]
    assert {name: among[name] for name in together} == together
    assert len(set(together.values())) == len(seeded)


def _forget_template(model: Path) -> None:
    path = model / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["chat_template"]
    path.write_text(json.dumps(config))
