"""Chats with tools, thoughts and templates: two batches answer what plain decoding answers, in every field."""

import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from integration.worker.engine.chat_model import CLOCK, END_OF_THOUGHT, SOON_CLOSED, TEMPLATE, WEATHER, let_it_think
from integration.worker.engine.real_engine import chat
from integration.worker.minedraft.both_engines import Rings, ask, choices, running
from integration.worker.minedraft.cases import english

from producer.record.models import Answer, Row
from worker.engine.protocol import RowError
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.minedraft.measures import summary

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

CALL = r'<tool_call>\{"name": "weather", "arguments": \{"day": "(mon|tue)", "hot": true\}\}</tool_call>'
SHAPE = {"type": "json_schema", "json_schema": {"name": "day", "schema": WEATHER["function"]["parameters"]}}
NAMED = {"type": "function", "function": {"name": "weather"}}
#: For calls that end soon: quotes, braces and brackets are likely to a model that knows no JSON.
CALLED: dict[str, Any] = {"max_tokens": 200, "logit_bias": {str(END_OF_THOUGHT): 10, **SOON_CLOSED}}
#: Of a prompt that is read in chunks, in characters.
LONG = 700


def rows(count: int = 3, length: int = 60, **body: Any) -> list[Row]:
    """Chats that are sampled, whose thoughts end after some tokens."""
    bias = {str(END_OF_THOUGHT): 7}
    asked = {"temperature": 1, "logit_bias": bias, "max_tokens": 80, **body}
    return [chat(english(i * 97, length), **{"seed": i, **asked}) for i in range(count)]


def with_system(row: Row) -> Row:
    return replace(row, body={**row.body, "messages": [{"role": "system", "content": "short"}, *row.body["messages"]]})


CASES = {
    "system prompts and arguments of the template": [
        with_system(row) for row in rows(chat_template_kwargs={"style": "loud"}, min_p=0.01)
    ],
    "templates of their own": rows(chat_template="{{ messages[0].content }}<think>", top_p=0.9),
    "thoughts without an end": rows(logit_bias=None, temperature=0, max_tokens=30),
    "thoughts left out": rows(include_reasoning=False),
    "structure after thoughts": rows(response_format=SHAPE) + rows(response_format=SHAPE, seed=None, temperature=0),
    "a tool must be called": rows(tools=[WEATHER, CLOCK], tool_choice="required", **CALLED),
    "this tool must be called": rows(tools=[WEATHER, CLOCK], tool_choice=NAMED, **CALLED),
    "one call of a tool": rows(tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, **CALLED),
    "a tool may be called": rows(tools=[WEATHER, CLOCK], structured_outputs={"regex": CALL}, **CALLED),
    "no tool may be called": rows(tools=[WEATHER], tool_choice="none"),
    "several answers": rows(2, n=3, top_k=50),
    "prompts in chunks": rows(4, LONG, response_format=SHAPE) + rows(4, LONG, max_tokens=40),
}


@pytest.fixture(scope="session")
def tiny_pair(tiny_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The pair, with tokens for thoughts."""
    folder = tmp_path_factory.mktemp("thinking")
    target, draft = (let_it_think(Path(shutil.copytree(model, folder / str(i)))) for i, model in enumerate(tiny_pair))
    return target, draft


@pytest.fixture(scope="module")
def chatting(options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The options of an engine that reads thoughts and calls of tools."""
    template = tmp_path_factory.mktemp("template") / "template.jinja"
    template.write_text(TEMPLATE)
    parsers = "--reasoning-parser deepseek_r1 --enable-auto-tool-choice --tool-call-parser hermes"
    return {**options, "engine_args": f"{options['engine_args']} --chat-template {template} {parsers}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(chatting: dict[str, Any]) -> dict[str, list[Answer]]:
    """What plain decoding answers."""
    async with running(VllmOptions(**chatting)) as engine:
        return {name: await ask(engine, case) for name, case in CASES.items()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(chatting: dict[str, Any], plain: dict[str, list[Answer]]) -> AsyncIterator[VllmEngine]:
    async with running(VllmOptions(**chatting, mode="psd")) as two_batches:
        yield two_batches


def messages(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """All that the answers say; the names of calls are made up anew each time."""
    said = [dict(choice["message"]) for choice in choices(answers)]
    for message in said:
        message["tool_calls"] = [call["function"] for call in message.get("tool_calls") or []]
    return said


@pytest.mark.parametrize("name", CASES)
async def test_chats_are_answered_as_by_plain_decoding(
    engine: VllmEngine, plain: dict[str, list[Answer]], name: str
) -> None:
    ours = await ask(engine, CASES[name])
    assert [choice["token_ids"] for choice in choices(ours)] == [choice["token_ids"] for choice in choices(plain[name])]
    assert messages(ours) == messages(plain[name])
    assert [choice["finish_reason"] for choice in choices(ours)] == [
        choice["finish_reason"] for choice in choices(plain[name])
    ]


async def test_chats_are_drafted_for(engine: VllmEngine) -> None:
    rings = Rings(engine)
    await ask(engine, [row for case in CASES.values() for row in case])
    assert summary(*rings.read()).acceptance > 0.1


async def test_the_cases_are_what_they_are_called(plain: dict[str, list[Answer]]) -> None:
    for name in ("a tool must be called", "this tool must be called", "one call of a tool", "a tool may be called"):
        assert any(message["tool_calls"] for message in messages(plain[name])), name
    assert all(len(message["tool_calls"]) < 2 for message in messages(plain["one call of a tool"]))
    assert not any(message["tool_calls"] for message in messages(plain["no tool may be called"]))
    for name in ("structure after thoughts", "system prompts and arguments of the template"):
        assert any(message["reasoning"] for message in messages(plain[name]))
        assert any(message["content"] for message in messages(plain[name]))
    assert all(message["content"] is None for message in messages(plain["thoughts without an end"]))
    assert all(answer.prompt_tokens > 128 for answer in plain["prompts in chunks"])


async def test_a_budget_of_thinking_tokens_is_refused_by_name(engine: VllmEngine) -> None:
    with pytest.raises(RowError, match="thinking_token_budget is not supported in mode psd"):
        await engine.answer(chat(thinking_token_budget=5))
