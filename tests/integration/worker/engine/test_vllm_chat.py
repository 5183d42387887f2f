"""Chats, tools and adapters with the real engine, plain decoding: what works, and what is refused by name."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from integration.worker.engine.chat_model import (
    CLOCK,
    END_OF_THOUGHT,
    SOON_CLOSED,
    TEMPLATE,
    WEATHER,
    build_adapter,
    let_it_think,
)
from integration.worker.engine.real_engine import chat, completion

from producer.record.models import Answer, Row
from worker.engine.protocol import EngineStartError, RowError, TransientError
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.environment import environment
from worker.lab.tiny import build_tiny_model

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: How long a template may take here, in seconds.
TEMPLATE_S = 5
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
#: Thoughts end soon, by a token that a grammar forbids once they have ended.
SHORT_THOUGHTS: dict[str, Any] = {
    "logit_bias": {str(END_OF_THOUGHT): 9},
    "temperature": 1,
    "seed": 3,
    "max_tokens": 200,
}
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    folder = tmp_path_factory.mktemp("chat")
    model = let_it_think(build_tiny_model(folder / "model"))
    (folder / "template.jinja").write_text(TEMPLATE)
    flags = f"""
        --max-model-len 512 --chat-template {folder / "template.jinja"} --reasoning-parser deepseek_r1
        --enable-auto-tool-choice --tool-call-parser hermes
        --enable-lora --max-lora-rank 8 --lora-modules adapter={build_adapter(folder / "adapter")}
        --structured-outputs-config.backend xgrammar --structured-outputs-config.disable_any_whitespace true
    """
    engine = VllmEngine(VllmOptions(str(model), "tiny", max_num_seqs=8, engine_args=flags))
    with environment({"VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT": str(TEMPLATE_S)}):
        await engine.start()
        yield engine
        await engine.close()


async def message(engine: VllmEngine, row: Row) -> dict[str, Any]:
    said: dict[str, Any] = (await engine.answer(row)).body["choices"][0]["message"]
    return said


async def prompt_of(engine: VllmEngine, row: Row) -> str:
    row.body.update(return_prompt_text=True, max_tokens=1)
    return str((await engine.answer(row)).body["prompt_text"])


async def test_a_prompt_is_what_the_workers_template_makes_of_all_messages(engine: VllmEngine) -> None:
    called = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]
    row = chat(messages=messages, tools=[WEATHER], chat_template_kwargs={"style": "x", "not read": 1})
    assert await prompt_of(engine, row) == (
        "(x)[weather]<|im_start|>system: be brief<|im_end|><|im_start|>user: a\nb<|im_end|>"
        "<|im_start|>assistant: <|im_end|><|im_start|>tool: sunny<|im_end|><|im_start|>"
    )


async def test_a_row_may_bring_a_template_of_its_own(engine: VllmEngine) -> None:
    row = chat("Hello", chat_template="{{ mood }}: {{ messages[0].content }}", chat_template_kwargs={"mood": "gay"})
    assert await prompt_of(engine, row) == "gay: Hello"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "Expected an expression"),
        ("{{ a.b.c }}", "'a' is undefined"),
        ("{{ 1 // 0 }}", "division"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("", "empty"),
    ],
)
async def test_a_template_that_fails_is_a_row_error(engine: VllmEngine, template: str, words: str) -> None:
    with pytest.raises(RowError, match=words) as refused:
        await engine.answer(chat("Hello", chat_template=template or "{{ '' }}"))
    assert refused.value.fault.code == "invalid_request"


async def test_a_template_without_an_end_is_a_row_error_and_costs_others_some_seconds(engine: VllmEngine) -> None:
    stuck = asyncio.create_task(engine.answer(chat("Hello", chat_template=ENDLESS)))
    await asyncio.sleep(0.2)
    another = asyncio.create_task(engine.answer(chat("Hello", chat_template=ENDLESS)))  # has its turn in between
    await asyncio.sleep(0.3)
    behind = await asyncio.gather(*(engine.answer(chat(**GREEDY)) for _ in range(3)), return_exceptions=True)
    with pytest.raises(RowError, match="did not come to an end") as refused:
        await stuck
    assert not isinstance(refused.value, TransientError)
    assert {type(end) for end in behind} <= {Answer, TransientError}  # those are asked again
    with pytest.raises(RowError, match="chat template"):
        await another
    assert await engine.answer(chat(**GREEDY))
    async with asyncio.timeout(5):  # a thread that computes on would keep the process from ending
        while sum("ThreadPoolExecutor" in thread.name for thread in threading.enumerate()) > 1:
            await asyncio.sleep(0.05)


async def test_thoughts_are_told_from_the_answer(engine: VllmEngine) -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": WEATHER["function"]["parameters"]}}
    for seed in range(3):
        said = await message(engine, chat(f"Hello {seed}", response_format=shape, **{**SHORT_THOUGHTS, "seed": seed}))
        assert "</think>" not in said["content"]
        assert json.loads(said["content"])["day"] in ("mon", "tue")
        assert "reasoning" in said
    only = await message(engine, chat("Hello", chat_template="{{ messages[0].content }}", **GREEDY))
    assert only["reasoning"]  # the model has not stopped to think
    assert only["content"] is None


async def test_reasoning_can_be_left_out(engine: VllmEngine) -> None:
    said = await message(engine, chat("Hello", include_reasoning=False, **SHORT_THOUGHTS))
    assert not said.get("reasoning")


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}], ids=["required", "named"]
)
async def test_a_tool_that_must_be_called_is_called(engine: VllmEngine, choice: Any) -> None:
    """By its name; vLLM holds the arguments to what the tool declares only where that says `strict`."""
    calls = []
    asked = {**SHORT_THOUGHTS, "logit_bias": {**SHORT_THOUGHTS["logit_bias"], **SOON_CLOSED}}
    for seed in range(3):
        row = chat(f"Hello {seed}", tools=[WEATHER], tool_choice=choice, **{**asked, "seed": seed})
        calls += (await message(engine, row)).get("tool_calls", [])
    assert {call["function"]["name"] for call in calls} == {"weather"}
    for call in calls:
        json.loads(call["function"]["arguments"])


async def test_a_tool_may_be_called_and_a_call_is_read(engine: VllmEngine) -> None:
    call = r'<tool_call>\{"name": "weather", "arguments": \{"day": "mon", "hot": true\}\}</tool_call>'
    asked = {"tools": [WEATHER, CLOCK], **SHORT_THOUGHTS}
    said = await message(engine, chat("Hello", structured_outputs={"regex": call}, **asked))
    (made,) = said["tool_calls"]
    assert (made["function"]["name"], json.loads(made["function"]["arguments"])) == (
        "weather",
        {"day": "mon", "hot": True},
    )
    none = await message(engine, chat("Hello", structured_outputs={"regex": call}, tool_choice="none", **asked))
    assert "tool_calls" not in none
    assert "<tool_call>" in none["content"]


async def test_an_adapter_is_asked_by_its_name(engine: VllmEngine) -> None:
    base, adapted = [(await engine.answer(completion(model=name, **GREEDY))).body for name in ("tiny", "adapter")]
    assert (base["model"], adapted["model"]) == ("tiny", "adapter")
    assert base["choices"][0]["text"] != adapted["choices"][0]["text"]
    with pytest.raises(RowError, match="'adapter'"):
        await engine.answer(completion(model="another", **GREEDY))


async def test_beam_search_finds_likelier_answers_than_greedy_decoding(engine: VllmEngine) -> None:
    found = await engine.answer(completion(use_beam_search=True, n=4, max_tokens=5, return_token_ids=True))
    answers = [tuple(choice["token_ids"]) for choice in found.body["choices"]]
    assert len(set(answers)) == 4
    greedy = await engine.answer(completion(temperature=0, max_tokens=5, ignore_eos=True, return_token_ids=True))
    scores = [await likelihood(engine, list(answer)) for answer in (*answers, greedy.body["choices"][0]["token_ids"])]
    assert scores[:4] == sorted(scores[:4], reverse=True)
    assert scores[0] >= scores[4] - 1e-4


async def likelihood(engine: VllmEngine, answer: list[int]) -> float:
    """The logarithm of the probability of these tokens after the prompt."""
    first = await engine.answer(completion(max_tokens=1, return_token_ids=True))
    prompt = first.body["choices"][0]["prompt_token_ids"] + answer
    told = (await engine.answer(completion(prompt, max_tokens=1, prompt_logprobs=0))).body["choices"][0]
    return sum(
        of_place[str(token)]["logprob"]
        for token, of_place in zip(answer, told["prompt_logprobs"][-len(answer) :], strict=True)
    )


IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}]}


@pytest.mark.parametrize(
    ("row", "code", "words"),
    [
        (chat(messages=[IMAGE]), "unsupported_content", "only text"),
        (chat(priority=1), "unsupported_parameter", "priority"),
        (chat(chat_template_kwargs={"chat_template": "x"}), "unsupported_parameter", "chat_template"),
        (chat(chat_template=5), "invalid_request", "chat_template"),
        (chat(chat_template_kwargs=[[1]]), "invalid_request", "chat_template_kwargs"),
        (chat(tools=[]), "invalid_request", "tools"),
        (chat(tool_choice="required"), "invalid_request", "tools"),
        (chat(tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "x"}}), "invalid_request", "tool"),
        (completion(suffix="x"), "invalid_request", "suffix"),
        (completion(use_beam_search=True, seed=1), "unsupported_parameter", "seed"),
        (completion(use_beam_search=True, n=11), "invalid_request", "22"),
        (completion(trace_decode_token_ids=[1]), "unknown_parameter", "trace_decode_token_ids"),
        (completion(stream_options={"include_usage": True}), "invalid_request", "stream"),
        (completion(prompt_embeds="AAAA"), "unsupported_parameter", "prompt_embeds"),
    ],
)
async def test_what_does_not_work_is_refused_by_name(engine: VllmEngine, row: Row, code: str, words: str) -> None:
    with pytest.raises(RowError, match=words) as refused:
        await engine.answer(row)
    assert refused.value.fault.code == code


@pytest.mark.parametrize(
    ("mode", "flags", "words"),
    [
        ("psd", "--enable-lora", "LoRA adapters"),
        ("psd", "--scheduling-policy priority", "priorities"),
        ("psd", "--logits-processors some.where:Class", "logits processors"),
        (
            "psd",
            '--reasoning-config \'{"reasoning_start_str": "<a>", "reasoning_end_str": "</a>"}\'',
            "thinking tokens",
        ),
        ("psd", "--enable-prompt-embeds", "prompt embeddings"),
        ("ar", "--runner pooling --convert embed", "does not generate text"),
        ("ar", "--tool-call-parser hermes --enable-auto-tool-choice --reasoning-parser nobody", "nobody"),
        ("ar", "--reasoning-parser deepseek_r1", "think"),
    ],
)
async def test_an_engine_that_could_not_do_it_does_not_start(
    tiny_model: Path, mode: Any, flags: str, words: str
) -> None:
    options = VllmOptions(str(tiny_model), "tiny", mode, draft_model=str(tiny_model), engine_args=flags)
    engine = VllmEngine(options)
    with pytest.raises(EngineStartError, match=words) as refused:
        await engine.start()
    await engine.close()
    assert "\n" not in str(refused.value)
