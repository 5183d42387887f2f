"""Tier B's parts, with an engine that is imagined: what they judge, and that they can fail."""

import asyncio
import contextlib
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu import engine_parts, engines
from gpu.compare import Plain
from gpu.engine_parts import DRAFTER
from gpu.engines import ROWS
from gpu.parts import Checks, Verdict
from timelines import two_batches

from producer.record.models import Row
from worker.engine.protocol import EngineDead
from worker.engine.vllm_args import VllmOptions
from worker.minedraft.stages import DRAFTER as DRAFTER_RING
from worker.minedraft.stages import verifier_name

TOKENS = [5, 6, 7, 8]


class Engine:
    """Answers all rows alike, and dies with its drafter.

    Attributes:
        options: it was made with.
    """

    def __init__(self, world: "World", options: VllmOptions) -> None:
        self.options, self._world = options, world
        self.killed = asyncio.Event()

    async def answers(self, rows: Sequence[Row]) -> list[list[int]]:
        long = rows[0].body["max_tokens"] == engine_parts.LONG
        if long and len(rows) == len(ROWS["short"]):  # the rows that are under way when the drafter is killed
            if self.options.link == "nccl":
                await self.killed.wait()
                raise EngineDead("the drafter")
            return [self._world.tokens] * len(rows)
        await asyncio.sleep(0.05 * (len(rows) == 1))
        return [self._world.tokens] * len(rows)

    async def wait_dead(self) -> str:
        await self.killed.wait()
        return "the drafter was killed by signal 9"


class World:
    """What is around the parts.

    Attributes:
        tokens: what each row is answered.
        records: of the ranks.
        preempted: rows, by the engine's own counter.
        mib: in use on all GPUs.
    """

    def __init__(self) -> None:
        self.tokens, self.records = TOKENS, two_batches(200)
        self.preempted, self.mib = 3.0, 100
        self.engines: list[Engine] = []
        self._counted = 0.0

    @contextlib.asynccontextmanager
    async def running(self, options: VllmOptions) -> AsyncIterator[Engine]:
        self.engines.append(Engine(self, options))
        yield self.engines[-1]

    def counted(self, name: str) -> float:
        self._counted += 50
        if name == engine_parts.PREEMPTED:
            return self.preempted * (self._counted > 60)
        return {engine_parts.ACCEPTED: 30.0, engine_parts.DRAFTED: 40.0}.get(name, self._counted)

    def read(self) -> Any:
        return self.records[verifier_name(0)], self.records[DRAFTER_RING]

    def ranks(self) -> dict[str, Any]:
        return {DRAFTER: SimpleNamespace(send_signal=lambda _: self.engines[-1].killed.set())}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    plain = Plain(TOKENS, [1] * 4, [1.0] * 4)
    monkeypatch.setattr(engine_parts, "plain", lambda *_: {name: [plain] * len(rows) for name, rows in ROWS.items()})
    monkeypatch.setattr(engine_parts, "tokens_of", lambda engine, rows: engine.answers(rows))
    monkeypatch.setattr(engine_parts, "Rings", lambda _: found)
    for name in ("running", "counted", "ranks"):
        monkeypatch.setattr(engine_parts, name, getattr(found, name))
    monkeypatch.setattr(engine_parts, "memory_used", lambda: 100)
    monkeypatch.setattr(engines, "memory_used", lambda: found.mib)
    monkeypatch.setattr(engine_parts, "GONE_WITHIN_S", 0.2)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Namespace:
    return Namespace(model="t", draft_model="d", folder=tmp_path, link="nccl", gpus=2, tensor_parallel_size=1)


@pytest.fixture
def part(world: World, run: Namespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, Verdict]]]:
    """Do a part; the verdict of each of its checks."""
    del world
    monkeypatch.setenv(engine_parts.MARK, "before")  # parts set it; it goes back to what it was

    def do(name: str) -> dict[str, Verdict]:
        checks = Checks()
        getattr(engine_parts, name)(checks, run)
        return {check.what: check.verdict for check in checks.all}

    return do


@pytest.mark.parametrize("name", ["sd", "psd", "graphs", "bf16", "death", "overlapping"])
def test_a_part_of_an_engine_that_does_well_passes(name: str, part: Callable[..., dict[str, Verdict]]) -> None:
    verdicts = part(name)
    assert Verdict.PASS in verdicts.values()
    assert Verdict.FAIL not in verdicts.values()


@pytest.mark.parametrize(("name", "texts"), [("sd", 1), ("psd", 2), ("graphs", 2), ("bf16", 1)])
def test_other_texts_fail(name: str, texts: int, world: World, part: Callable[..., dict[str, Verdict]]) -> None:
    world.tokens = [5, 6, 9, 8]
    assert list(part(name).values()).count(Verdict.FAIL) == texts


@pytest.mark.parametrize("name", ["psd", "death"])
def test_memory_that_is_not_given_back_fails(name: str, world: World, part: Callable[..., dict[str, Verdict]]) -> None:
    world.mib = 9000
    failed = [what for what, verdict in part(name).items() if verdict is Verdict.FAIL]
    assert len(failed) == 1
    assert failed[0].startswith("memory not back")


def test_drafts_that_come_too_late_fail(world: World, run: Namespace, part: Callable[..., dict[str, Verdict]]) -> None:
    run.model = None
    for folder in ("pair/target", "pair/draft"):
        (run.folder / folder).mkdir(parents=True)
    (run.folder / "pair/done").touch()
    assert Verdict.FAIL not in part("psd").values()
    (run.folder / "nowhere").rmdir()
    world.records[verifier_name(0)]["accepted"] = 0
    assert part("psd")["drafts that were accepted"] is Verdict.FAIL


def test_without_a_preemption_nothing_was_tried(world: World, part: Callable[..., dict[str, Verdict]]) -> None:
    world.preempted = 0
    assert part("graphs")["rows preempted"] is Verdict.FAIL


def test_an_engine_that_outlives_its_drafter_on_nccl_fails(
    world: World, part: Callable[..., dict[str, Verdict]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_parts, "DEAD_WITHIN_S", 0.1)
    monkeypatch.setattr(engine_parts, "ranks", lambda: {DRAFTER: SimpleNamespace(send_signal=lambda _: None)})
    began = time.monotonic()
    verdicts = part("death")
    assert verdicts["the engine's end after the drafter's"] is Verdict.FAIL
    assert verdicts["rows that were under way"] is Verdict.FAIL
    assert time.monotonic() - began < 10


def test_on_the_hosts_link_rows_go_on_without_a_drafter(
    run: Namespace, part: Callable[..., dict[str, Verdict]]
) -> None:
    run.link = "host"
    assert part("death")["rows after the drafter was killed"] is Verdict.PASS


def test_overlap_is_judged_where_there_are_gpus_for_it(run: Namespace, part: Callable[..., dict[str, Verdict]]) -> None:
    assert part("overlapping")["hidden share"] is Verdict.PASS
    run.gpus = 1
    assert part("overlapping")["hidden share"] is Verdict.REPORT
