"""The real engine, plain decoding: what it answers, what it refuses, and that it comes back."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from integration.worker.engine.real_engine import chat, completion, engine_processes, watched_loop
from prometheus_client import REGISTRY

from producer.record.models import Answer, Row
from worker.engine.protocol import EngineDead, RowError
from worker.engine.supervisor import EngineSupervisor
from worker.engine.vllm import VllmEngine, VllmOptions

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONTEXT = 1024
#: Prompts longer than a chunk are read in several steps.
FLAGS = f"--max-model-len {CONTEXT} --max-num-batched-tokens 64"
LONG = "one two three " * 40


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_model: Path) -> AsyncIterator[EngineSupervisor]:
    options = VllmOptions(str(tiny_model), "tiny", max_num_seqs=8, engine_args=FLAGS)
    supervisor = EngineSupervisor(lambda: VllmEngine(options))
    async with watched_loop() as gap:
        await supervisor.start()
    print(f"the loop was held up for {gap.worst:.2f} s at most during the start")
    # Importing torch holds the interpreter's lock; anything that blocks the loop itself takes many seconds.
    assert gap.worst < 2.0
    yield supervisor
    await supervisor.close()
    assert engine_processes() == []


def text(answer: Answer) -> str:
    choice = answer.body["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


async def test_answers_have_openais_shape(engine: EngineSupervisor) -> None:
    for row, kind in [(chat, "chat.completion"), (completion, "text_completion")]:
        answer = await engine.answer(row(model="target", temperature=0, max_tokens=8, ignore_eos=True))
        assert answer.body["object"] == kind
        assert answer.body["model"] == "tiny"
        assert text(answer)
        usage = answer.body["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (answer.prompt_tokens, answer.completion_tokens)
        assert answer.completion_tokens == 8
        assert answer.prompt_tokens > 0
    assert engine.capacity == 8


@pytest.mark.parametrize("row", [chat, completion])
@pytest.mark.parametrize("missing", [{}, {"max_tokens": None}])
async def test_without_max_tokens_the_context_is_the_limit(
    engine: EngineSupervisor, row: Callable[..., Row], missing: dict[str, Any]
) -> None:
    answer = await engine.answer(row(temperature=0, ignore_eos=True, **missing))
    assert answer.prompt_tokens + answer.completion_tokens == CONTEXT


@pytest.mark.parametrize("row", [chat, completion])
async def test_a_long_prompt_that_is_truncated_leaves_room_for_its_answer(
    engine: EngineSupervisor, row: Callable[..., Row]
) -> None:
    """What `producer submit --truncate-prompts 1000` asks for."""
    kept = {"truncate_prompt_tokens": 1000, "truncation_side": "left"}
    for most in ({"max_tokens": 8}, {}):
        answer = await engine.answer(row("x " * CONTEXT, temperature=0, ignore_eos=True, **kept, **most))
        assert answer.prompt_tokens == 1000
        assert answer.completion_tokens == most.get("max_tokens", CONTEXT - 1000)
    with pytest.raises(RowError):  # vLLM's "as long as the context" leaves no room unless max_tokens is said
        await engine.answer(row("x " * CONTEXT, truncate_prompt_tokens=-1))


async def test_several_answers_and_logprobs_and_structure(engine: EngineSupervisor) -> None:
    several = await engine.answer(completion(n=3, max_tokens=4, logprobs=2, ignore_eos=True))
    assert [choice["index"] for choice in several.body["choices"]] == [0, 1, 2]
    assert len(several.body["choices"][0]["logprobs"]["tokens"]) == 4
    assert several.completion_tokens == 12
    chosen = await engine.answer(chat(structured_outputs={"choice": ["yes", "no"]}))
    assert text(chosen) in ("yes", "no")


@pytest.mark.parametrize(
    ("row", "code", "words"),
    [
        (chat("x " * CONTEXT), "context_length_exceeded", str(CONTEXT)),
        (completion("x " * 99999), "context_length_exceeded", str(CONTEXT)),
        (completion(""), "invalid_request", "prompt"),
        (completion([]), "invalid_request", "prompt"),
        (completion(5), "invalid_request", "prompt: "),
        (completion([10**9]), "invalid_request", "vocabulary"),
        (completion("\ud800"), "invalid_request", ""),
        (chat(messages=[]), "invalid_request", "message"),
        (chat(messages="hello"), "invalid_request", "messages: "),
        (chat(messages=[{"role": "user", "content": 5}]), "invalid_request", "messages.0"),
        (chat(max_tokens=CONTEXT + 1), "invalid_request", "max_tokens"),
        (chat(max_tokens=0), "invalid_request", "max_tokens"),
        (chat(temperature="hot"), "invalid_request", "temperature: "),
        (chat(temperature=float("nan")), "invalid_request", "temperature"),
        (chat(seed=10**30), "invalid_request", "seed: "),
        (chat(top_k=10**30), "invalid_request", ""),
        (chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "x"}}}),
         "invalid_request", ""),
        (chat(model="gpt-4"), "model_not_found", "'tiny'"),
        (chat(stream=True), "streaming_not_supported", "stream"),
        (chat(guided_json={}), "unknown_parameter", '"guided_json"'),
        (Row(0, 1, "a", "/v1/embeddings", {}), "unsupported_url", "/v1/embeddings"),
    ],
)  # fmt: skip
async def test_a_bad_row_is_a_row_error(engine: EngineSupervisor, row: Row, code: str, words: str) -> None:
    with pytest.raises(RowError) as refused:
        await engine.answer(row)
    fault = refused.value.fault
    assert fault.code == code
    assert words in fault.message
    assert "\n" not in fault.message
    assert len(fault.message) <= 500
    assert engine.restarts == 0


async def test_a_seed_gives_the_same_text_however_rows_are_batched(engine: EngineSupervisor) -> None:
    """Without our CPU worker the first of these rows would end the engine."""
    rows = [completion(f"{LONG}{i}", seed=i, temperature=1.0, max_tokens=12) for i in range(4)]
    alone = [text(await engine.answer(row)) for row in rows]
    together = [text(answer) for answer in await asyncio.gather(*(engine.answer(row) for row in rows))]
    short = [text(await engine.answer(completion("Hello", seed=7, max_tokens=12))) for _ in range(2)]
    assert alone == together
    assert len(set(alone)) == 4
    assert short[0] == short[1]
    assert engine.restarts == 0


async def test_many_rows_at_once_leave_the_loop_free(engine: EngineSupervisor) -> None:
    rows = [(chat, completion)[i % 2](f"Prompt {i}", temperature=0, max_tokens=32) for i in range(32)]
    async with watched_loop() as gap:
        together = await asyncio.gather(*(engine.answer(row) for row in rows))
    print(f"the loop was held up for {gap.worst:.2f} s at most under load")
    assert gap.worst < 0.5
    assert [text(answer) for answer in together[:3]] == [text(await engine.answer(row)) for row in rows[:3]]


@pytest.mark.parametrize("row", [chat, completion])
async def test_a_cancelled_row_leaves_the_engine(engine: EngineSupervisor, row: Callable[..., Row]) -> None:
    calls = [asyncio.create_task(engine.answer(row(ignore_eos=True))) for _ in range(8)]
    await until(lambda: running_requests() == 8)
    for call in calls:
        call.cancel()
    assert await asyncio.gather(*calls, return_exceptions=True)
    # The gauge follows the engine's steps: another row makes it take some.
    await engine.answer(chat(max_tokens=2))
    assert running_requests() == 0


async def test_a_killed_engine_comes_back_and_rows_finish(engine: EngineSupervisor) -> None:
    names = metric_names()
    rows = [completion(f"Prompt {i}", temperature=0, max_tokens=400, ignore_eos=True) for i in range(8)]
    before = [text(answer) for answer in await asyncio.gather(*(engine.answer(row) for row in rows))]
    calls = [asyncio.create_task(engine.answer(row)) for row in rows]
    await asyncio.sleep(0.2)
    old = engine_processes()
    os.kill(old[0].pid, signal.SIGKILL)
    await until(lambda: engine.restarts == 1, seconds=120)
    assert {type(end) for end in await asyncio.gather(*calls, return_exceptions=True)} == {EngineDead}
    assert [text(answer) for answer in await asyncio.gather(*(engine.answer(row) for row in rows))] == before
    assert not any(process.is_running() for process in old)
    assert metric_names() == names
    assert "vllm:generation_tokens_total" in names
    assert counted("vllm:generation_tokens_total") == 8 * 400  # the new engine counts from zero


def running_requests() -> float:
    return counted("vllm:num_requests_running")


def counted(name: str) -> float:
    value = REGISTRY.get_sample_value(name, {"engine": "0", "model_name": "tiny"})
    assert value is not None
    return value


def metric_names() -> list[str]:
    """Every metric of vLLM in this process, as often as it is there."""
    return sorted(sample.name for metric in REGISTRY.collect() for sample in metric.samples if "vllm:" in metric.name)


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)
