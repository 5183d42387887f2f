"""The same with the ends of the NCCL link, over communicators of gloo: no relay, and no life without a drafter."""

import asyncio
import time
from typing import Any

import pytest
from integration.worker.minedraft.both_engines import ask, counted, differences, drafted, progress, ranks, running
from integration.worker.minedraft.cases import PREEMPTED
from v2_on_cpu.cases import CASES

from producer.record.models import Answer
from worker.engine.protocol import EngineDead
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.minedraft import names
from worker.minedraft.classes import RANKS_V2, Ranks

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

COMMUNICATING = Ranks(
    "ranks_on_cpu.CommunicatingVerifier", "ranks_on_cpu.CommunicatingDrafter", RANKS_V2.scheduler, "V2"
)
#: How long an engine may take to say that it is dead (seconds).
DEAD_WITHIN_S = 5.0


async def test_drafts_come_in_time_and_without_a_drafter_the_engine_ends(
    options: dict[str, Any],
    plain: dict[str, list[Answer]],
    stock: dict[str, tuple[float, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VllmOptions, "link_on", lambda self, *, cpu: "nccl")  # which a CPU is refused
    async with running(VllmOptions(**{**options, "ranks": COMMUNICATING}, mode="psd")) as engine:
        for name, wanted in stock.items():
            before = drafted()
            assert differences(plain[name], await ask(engine, CASES[name])) == []
            assert drafted(before) == wanted
        preempted = counted(PREEMPTED)
        for name in ("preempted", "one row"):
            assert differences(plain[name], await ask(engine, CASES[name])) == []
        assert counted(PREEMPTED) > preempted
        await _dies_with_its_drafter(engine)


async def _dies_with_its_drafter(engine: VllmEngine) -> None:
    calls = [asyncio.create_task(engine.answer(row)) for row in CASES["preempted"]]
    await progress(16)
    ranks()[names.DRAFTER].kill()
    killed = time.monotonic()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert time.monotonic() - killed < DEAD_WITHIN_S
    assert all(isinstance(answer, EngineDead) for answer in answers)
    assert f"{names.DRAFTER} was killed by signal 9" in await engine.wait_dead()
