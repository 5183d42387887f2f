"""Rows are those of plain decoding whatever is chosen from call to call, and wherever drafts are from."""

from typing import Any

import pytest
from integration.worker.minedraft.both_engines import Rings, ask, differences, drafted, running
from random_choices import VARIABLE
from v2_on_cpu.cases import CASES

from producer.record.models import Answer
from worker.engine.vllm import VllmOptions
from worker.strategies.seam import Strategy, Way

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

ASKED = ("greedy", "seeded", "whole prompts in the cache")


async def test_rows_are_those_of_plain_decoding(
    options: dict[str, Any], plain: dict[str, list[Answer]], stock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    del stock  # which comes first: one engine at a time is in a process
    monkeypatch.setenv(VARIABLE, "5")
    strategy = Strategy(source="mixed", length="adaptive")
    async with running(VllmOptions(**options, mode="psd", strategy=strategy)) as engine:
        rings, before = Rings(engine), drafted()
        for name in ASKED:
            assert differences(plain[name], await ask(engine, CASES[name])) == []
        verified, accepted = drafted(before)
        records = rings.read()[0]
    assert accepted > 0.2 * verified > 0
    assert {int(way) for way in records["way"]} == {Way.TWO, Way.ONE}
    assert {int(asked) for asked in records["asked"]} == {0, 1, 2, 3}
