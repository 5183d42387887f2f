"""A thousand greedy rows of every kind, in two batches and in plain decoding: the same texts."""
# ruff: noqa: RUF001 - all sorts of letters are what it is about

import ast
import inspect
import json
import random
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.worker.engine.real_engine import chat, completion
from integration.worker.minedraft.both_engines import ask, ask_plain, choices, differences, running, text
from integration.worker.minedraft.cases import CONTEXT, ENGLISH

from producer.record.models import Row
from worker.engine.vllm import VllmOptions

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

QUESTIONS = Path(__file__).parents[4] / "ops" / "examples" / "vicuna80.jsonl"
#: "The weather in ... is good today, and we have ... apples." in scripts and languages of all sorts.
SENTENCES = [
    "Das Wetter in {} ist heute schön, und wir haben {} Äpfel.",
    "Il fait beau à {} aujourd'hui, et nous avons {} pommes.",
    "Hoy hace buen tiempo en {}, y tenemos {} manzanas.",
    "今天{}天气很好，我们有{}个苹果。",
    "今日の{}は天気がよく、りんごが{}個あります。",
    "오늘 {} 날씨가 좋고 사과가 {}개 있어요.",
    "Сегодня в городе {} хорошая погода, и у нас {} яблок.",
    "الطقس جميل اليوم في {} ولدينا {} تفاحات.",
    "आज {} में मौसम अच्छा है और हमारे पास {} सेब हैं।",
    "Hava bugün {} şehrinde güzel ve {} elmamız var.",
    "Ο καιρός στην {} είναι καλός σήμερα και έχουμε {} μήλα.",
    "מזג האוויר ב{} יפה היום ויש לנו {} תפוחים.",
    "วันนี้ที่{}อากาศดี และเรามีแอปเปิล {} ผล",
    "🌤️ {} 🍎 × {} 👍🏽",
]
PLACES = ["Berlin", "Łódź", "東京", "São Paulo", "Αθήνα", "القاهرة", "Київ", "서울"]


def question(chance: random.Random) -> Row:
    body = json.loads(chance.choice(QUESTIONS.read_text(encoding="utf-8").splitlines()))["body"]
    return chat(messages=body["messages"], max_tokens=chance.randint(8, 48))


def short(chance: random.Random) -> Row:
    start = chance.randrange(len(ENGLISH) - 20)
    return completion(ENGLISH[start : start + chance.randint(1, 12)], max_tokens=chance.randint(8, 48))


def long(chance: random.Random) -> Row:
    """Read in chunks; some of them go on to the end of the context."""
    start = chance.randrange(len(ENGLISH) - 1000)
    most = chance.choice([8, 16, None])
    return completion(ENGLISH[start : start + chance.randint(300, 800)], max_tokens=most)


def multilingual(chance: random.Random) -> Row:
    said = " ".join(one.format(chance.choice(PLACES), chance.randrange(99)) for one in chance.sample(SENTENCES, 2))
    kind: Callable[..., Row] = chance.choice([chat, completion])
    return kind(said, max_tokens=chance.randint(8, 48))


def code(chance: random.Random) -> Row:
    lines = inspect.getsource(chance.choice([ast, inspect, random, textwrap])).splitlines()
    start = chance.randrange(len(lines) - 20)
    return completion("\n".join(lines[start : start + chance.randint(2, 14)]), max_tokens=chance.randint(8, 48))


KINDS: list[Callable[[random.Random], Row]] = [question, short, long, multilingual, code]


def thousand() -> list[Row]:
    """Rows that end within the context, 200 of each kind."""
    chance = random.Random(7)
    return [row(chance) for row in KINDS for _ in range(200)]


@pytest.mark.asyncio
async def test_a_thousand_rows_of_every_kind_say_the_same(options: dict[str, Any]) -> None:
    rows = [Row(row.index, row.line, row.custom_id, row.url, {"temperature": 0, **row.body}) for row in thousand()]
    async with running(VllmOptions(**options)) as engine:
        plain = await ask_plain(engine, rows)
    async with running(VllmOptions(**options, mode="psd")) as engine:
        ours = await ask(engine, rows)
    assert differences(plain, ours) == [], "in float32 there is not even a tie"
    assert len({text(choice) for choice in choices(plain)}) > 900
    prompts = [answer.prompt_tokens for answer in plain]
    print(f"prompts of {min(prompts)} to {max(prompts)} tokens, {sum(map(len, map(text, choices(plain))))} characters")
    assert min(prompts) < 10
    assert max(prompts) > CONTEXT // 2
