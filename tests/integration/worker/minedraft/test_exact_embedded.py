"""The embedded model and its drafter: the two-batch engine answers real prompts as plain decoding does."""

import json

import pytest
from integration.worker.minedraft.both_engines import SERVED, Rings, ask, ask_plain, differences, running
from shell import VICUNA

from producer.record.models import CHAT_URL, Row
from worker.engine.vllm import VllmOptions
from worker.minedraft.measures import summary
from worker.models.embedded import embedded_drafter, embedded_model

PROMPTS, TOKENS = 48, 48


def rows() -> list[Row]:
    bodies = [json.loads(line)["body"] for line in VICUNA.read_text(encoding="utf-8").splitlines()[:PROMPTS]]
    return [
        Row(index, index + 1, f"row-{index + 1}", CHAT_URL, {**body, "max_tokens": TOKENS})
        for index, body in enumerate(bodies)
    ]


@pytest.mark.full
async def test_real_prompts_are_answered_as_plain_decoding_answers_them() -> None:
    models = {"model": str(embedded_model()), "draft_model": str(embedded_drafter())}
    async with running(VllmOptions(served_model_name=SERVED, **models)) as engine:
        plain = await ask_plain(engine, rows())
    async with running(VllmOptions(served_model_name=SERVED, mode="psd", **models)) as engine:
        rings = Rings(engine)
        ours = await ask(engine, rows())
        measured = summary(*rings.read())
    print(measured)
    assert differences(plain, ours) == []
    assert measured.acceptance > 0.5  # it agrees two times in three
