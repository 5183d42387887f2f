"""The fake engine does as it is told, and the same each time."""

import asyncio
import time

import pytest

from producer.record.models import CHAT_URL, COMPLETIONS_URL, Row
from worker.engine.fake import FakeEngine, FakePlan
from worker.engine.protocol import EngineDead, EngineStartError, RowError


def chat(index: int = 0, **body: object) -> Row:
    messages = [{"role": "user", "content": f"prompt {index}"}]
    return Row(index, index + 1, f"row-{index}", CHAT_URL, {"messages": messages, **body})


def engine(flags: str = "", capacity: int = 4) -> FakeEngine:
    return FakeEngine(FakePlan.parse(flags), "m", capacity)


async def test_answers_have_openais_shape_and_depend_on_the_body_alone() -> None:
    first, second = engine(), engine("--seconds-per-row 0.001")
    answer = await first.answer(chat(3))
    assert answer == await second.answer(Row(9, 10, "other", CHAT_URL, chat(3).body))
    assert answer != await first.answer(chat(4))
    message = answer.body["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert len(message["content"].split()) == answer.completion_tokens == 16
    usage = answer.body["usage"]
    assert usage["prompt_tokens"] == answer.prompt_tokens > 0
    assert usage["total_tokens"] == answer.prompt_tokens + answer.completion_tokens
    completion = await first.answer(Row(0, 1, "a", COMPLETIONS_URL, {"prompt": "x", "max_tokens": 3}))
    assert completion.body["object"] == "text_completion"
    assert len(completion.body["choices"][0]["text"].split()) == 3


@pytest.mark.parametrize("limit", [0, -5, "7", None, 10**30, True])
async def test_a_strange_max_tokens_is_no_crash(limit: object) -> None:
    assert await engine().answer(chat(max_tokens=limit))


async def test_flags() -> None:
    told = engine("--tokens-per-row 3 --fail-every 2 --fail-on secret")
    assert (await told.answer(chat(0))).completion_tokens == 3
    with pytest.raises(RowError):
        await told.answer(chat(1))
    with pytest.raises(RowError):
        await told.answer(chat(2, user="a secret"))
    with pytest.raises(RowError, match="'other'"):
        await told.answer(chat(0, model="other"))


@pytest.mark.parametrize("flags", ["--nope", "--die-after x", "--die", "'", "word"])
def test_wrong_flags_are_one_line(flags: str) -> None:
    with pytest.raises(EngineStartError) as refused:
        FakePlan.parse(flags)
    assert str(refused.value).startswith("--engine-args: ")
    assert "\n" not in str(refused.value)


async def test_capacity_limits_rows_at_once() -> None:
    slow = engine("--seconds-per-row 0.05", capacity=2)
    started = time.monotonic()
    await asyncio.gather(*(slow.answer(chat(i)) for i in range(6)))
    assert 0.15 <= time.monotonic() - started < 1.0
    assert slow.capacity == 2


async def test_it_dies_after_n_answers_and_takes_rows_with_it() -> None:
    mortal = engine("--die-after 2 --seconds-per-row 0.01", capacity=8)
    ends = await asyncio.gather(*(mortal.answer(chat(i)) for i in range(5)), return_exceptions=True)
    assert sum(isinstance(end, EngineDead) for end in ends) == 3
    assert "after 2 answers" in await asyncio.wait_for(mortal.wait_dead(), 1)
    with pytest.raises(EngineDead):
        await mortal.answer(chat())


async def test_it_dies_at_its_first_starts() -> None:
    plan = FakePlan.parse("--die-at-start 2")
    for _ in range(2):
        with pytest.raises(EngineDead):
            await FakeEngine(plan, "m", 1).start()
    await FakeEngine(plan, "m", 1).start()


async def test_close_ends_rows_and_can_be_repeated() -> None:
    closed = engine("--seconds-per-row 60")
    row = asyncio.create_task(closed.answer(chat()))
    await asyncio.sleep(0.01)
    await closed.close()
    await closed.close()
    with pytest.raises(EngineDead):
        await asyncio.wait_for(row, 1)
