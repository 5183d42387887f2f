"""What can be wrong with a drafter: one that does not fit is refused by name, one that is lost takes no row with it."""

import asyncio
import json
import multiprocessing
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from integration.worker.minedraft.both_engines import (
    Rings,
    ask,
    ask_plain,
    counted,
    differences,
    ranks,
    running,
)
from integration.worker.minedraft.cases import CASES, GENERATED
from leftovers import MARK, Leftovers

from producer.record.models import Answer
from worker.engine import vllm
from worker.engine.protocol import EngineDead, EngineStartError
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.minedraft import names
from worker.minedraft.measures import summary
from worker.minedraft.presence import Presence, State

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

#: Rows of these kinds are under way when the drafter is lost.
MIXED = [
    row
    for name in (
        *("prompts in chunks", "prefixes in the cache", "whole prompts in the cache", "stop strings", "stop tokens"),
        *("repetition_penalty", "seeded, in chunks", "structure", "logprobs", "200 rows"),
    )
    for row in CASES[name].rows[:8]
]
#: As many as run at once, each of them about 400 steps long without drafts.
LONG = CASES["full context, preempted"].rows
#: A drafter imports vLLM and loads its model in this time on a busy machine (seconds).
START_S = 240.0


def change(file: Path, edit: Callable[[Any], None]) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    edit(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def two_tokens_swapped(draft: Path) -> None:
    def swap(tokenizer: Any) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        one, other = list(vocabulary)[-2:]
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]

    change(draft / "tokenizer.json", swap)


def a_context_of_256(draft: Path) -> None:
    change(draft / "config.json", lambda config: config.update(max_position_embeddings=256))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (two_tokens_swapped, "the draft model {draft} has another tokenizer than the target {target}"),
        (a_context_of_256, "the draft model {draft} reads 256 tokens, the target 2,048"),
    ],
)
async def test_a_draft_model_that_does_not_fit(
    spoil: Callable[[Path], None], words: str, tiny_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    target, draft = tiny_pair[0], shutil.copytree(tiny_pair[1], tmp_path / "draft")
    spoil(draft)
    there, environment = multiprocessing.active_children(), set(os.environ)
    engine = VllmEngine(VllmOptions(str(target), "pair", "psd", str(draft)))
    try:
        with pytest.raises(EngineStartError) as refused:
            await engine.start()
        assert multiprocessing.active_children() == there
    finally:
        await engine.close()
    # Beside defaults, nothing is left that would mislead the vLLM of somebody else.
    left = set(os.environ) - environment
    assert not left & {"VLLM_RPC_BASE_PATH", "VLLM_CPU_OMP_THREADS_BIND"}
    assert not any(name.startswith("MINEDRAFT_") for name in left)
    said = str(refused.value)
    assert said.startswith(f"mode psd: {words.format(target=target, draft=draft)}")
    assert "\n" not in said


class Stand:
    """A two-batch engine, and how its drafter fares."""

    def __init__(self, engine: VllmEngine, plain: dict[str, list[Answer]]) -> None:
        assert engine._folder is not None
        presence = Presence.seen_in(Path(engine._folder.name))
        assert presence is not None
        self.engine, self.presence, self._plain = engine, presence, plain

    async def rows_are_right(self, name: str = "mixed") -> None:
        """All rows of a kind are answered, and as plain decoding answers them."""
        rows = {"mixed": MIXED, "long": LONG}[name]
        assert differences(self._plain[name], await ask(self.engine, rows)) == []

    async def busy_until(self, condition: Callable[[], bool], name: str = "mixed") -> None:
        """Rows are under way until the condition holds, and then until they are answered."""
        async with asyncio.timeout(START_S), asyncio.TaskGroup() as asking:
            for _ in range(2):
                asking.create_task(self._again_and_again(name, condition))

    async def _again_and_again(self, name: str, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.rows_are_right(name)

    async def acceptance(self) -> float:
        """Accepted drafts of those verified, of all kinds of rows together."""
        rings = Rings(self.engine)
        await self.rows_are_right()
        return summary(*rings.read()).acceptance

    def loses(self) -> Callable[[], bool]:
        """Whether a drafter has been lost since this call."""
        before = self.presence.losses
        return lambda: self.presence.losses > before

    def joins(self) -> Callable[[], bool]:
        """Whether another one takes part since this call."""
        before = self.presence.joins
        return lambda: self.presence.joins > before


async def until(condition: Callable[[], bool], seconds: float = START_S) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def some_steps() -> None:
    """Return when rows have got some tokens more."""
    before = counted(GENERATED)
    await until(lambda: counted(GENERATED) > before + 20)


def strike(name: str, number: int = signal.SIGKILL) -> None:
    ranks()[name].send_signal(number)


def starting() -> list[psutil.Process]:
    """Ranks that are not named yet."""
    named = ranks()
    known = {process.pid for process in named.values()}
    children = named[names.ENGINE].children()
    return [child for child in children if child.pid not in known and "spawn_main" in " ".join(child.cmdline())]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(options: dict[str, Any]) -> dict[str, list[Answer]]:
    """What plain decoding answers."""
    async with running(VllmOptions(**options)) as engine:
        return {"mixed": await ask_plain(engine, MIXED), "long": await ask_plain(engine, LONG)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(options: dict[str, Any], plain: dict[str, list[Answer]]) -> AsyncIterator[Stand]:
    async with running(VllmOptions(**options, mode="psd")) as engine:
        yield Stand(engine, plain)


@pytest_asyncio.fixture(loop_scope="module")
async def alone(stand: Stand) -> None:
    """There is no other engine below this process: one could not tell their ranks apart."""
    await stand.engine.close()


async def test_a_drafter_that_is_killed_takes_no_row_with_it(stand: Stand) -> None:
    before = await stand.acceptance()
    engine, drafter, verifier = (ranks()[name].pid for name in (names.ENGINE, names.DRAFTER, names.verifier(0)))
    lost, back = stand.loses(), stand.joins()
    rows = asyncio.create_task(stand.rows_are_right())
    await some_steps()
    strike(names.DRAFTER)
    await until(lost, 5)
    assert not rows.done()
    await some_steps()
    rings, busy = Rings(stand.engine), asyncio.create_task(stand.busy_until(back, "long"))
    await until(lambda: back() or busy.done())
    assert rings.read()[0]["drafted"].sum() == 0, "nobody drafted meanwhile"
    # Rows that are under way when the next one joins are read anew, and drafted for.
    assert not busy.done()
    await busy
    await rows
    assert summary(*rings.read()).acceptance > 0.4
    # Those that come later, too, as if nothing had been.
    assert await stand.acceptance() == pytest.approx(before, abs=0.05)
    assert (ranks()[names.ENGINE].pid, ranks()[names.verifier(0)].pid) == (engine, verifier)
    assert ranks()[names.DRAFTER].pid != drafter
    assert (stand.presence.losses, stand.presence.joins) == (1, 1)
    assert stand.presence.state is State.PRESENT


@pytest.mark.full
async def test_one_that_is_killed_as_soon_as_it_takes_part(stand: Stand) -> None:
    for _ in range(2):
        await stand.busy_until(lambda: stand.presence.state is State.PRESENT)
        lost, back = stand.loses(), stand.joins()
        rows = asyncio.create_task(stand.busy_until(back))
        await some_steps()
        strike(names.DRAFTER)
        await until(lost, 5)
        await until(lambda: back() or rows.done())  # noqa: B023 - it has been awaited when they change
        again = stand.loses()
        strike(names.DRAFTER)
        await until(again, 5)
        await rows
    await stand.busy_until(lambda: stand.presence.state is State.PRESENT)
    assert await stand.acceptance() > 0.4


@pytest.mark.full
async def test_one_that_is_killed_while_it_starts(stand: Stand) -> None:
    lost, back = stand.loses(), stand.joins()
    rows = asyncio.create_task(stand.busy_until(back))
    await some_steps()
    strike(names.DRAFTER)
    await until(lost, 5)
    for wait in (0.0, 2.0):
        await until(lambda: bool(starting()))
        await asyncio.sleep(wait)
        for process in starting() or [ranks()[names.DRAFTER]]:
            process.kill()
            process.wait(10)
        assert not rows.done()
    await rows
    assert await stand.acceptance() > 0.4


async def test_a_verifiers_death_is_the_engines(stand: Stand) -> None:
    """The last test of this engine."""
    rows = asyncio.create_task(stand.rows_are_right("long"))
    await some_steps()
    strike(names.verifier(0))
    async with asyncio.timeout(15):
        assert f"{names.verifier(0)} was killed by signal 9" in await stand.engine.wait_dead()
        with pytest.raises(EngineDead):
            await rows


@pytest.mark.full
@pytest.mark.usefixtures("alone")
async def test_one_that_does_not_answer_is_ended_and_replaced(
    options: dict[str, Any], plain: dict[str, list[Answer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "DEADLINE_S", 8.0)
    async with running(VllmOptions(**options, mode="psd")) as engine:
        stand = Stand(engine, plain)
        await stand.rows_are_right()
        frozen, lost, back = ranks()[names.DRAFTER], stand.loses(), stand.joins()
        rows = asyncio.create_task(stand.busy_until(back))
        await some_steps()
        frozen.suspend()
        await until(lost, 8 + 5)
        frozen.wait(5)
        await rows
        assert await stand.acceptance() > 0.4


@pytest.mark.full
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("moment", [0.0, 4.0])
async def test_an_engine_that_ends_while_the_next_one_starts_leaves_nothing(
    moment: float,
    options: dict[str, Any],
    plain: dict[str, list[Answer]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resource_tracker.ensure_running()  # this process's own, which stays
    monkeypatch.setenv(MARK, secrets.token_hex(8))
    left = Leftovers(os.environ[MARK], tmp_path, tmp_path)
    with left.followed():
        async with running(VllmOptions(**options, mode="psd")) as engine:
            stand = Stand(engine, plain)
            lost = stand.loses()
            await stand.rows_are_right()
            strike(names.DRAFTER)
            await until(lost, 5)
            await until(lambda: bool(starting()))
            await asyncio.sleep(moment)
            left.look()
        # A process that is killed leaves a lock (of tqdm's); this process's tracker of resources removes it at its end.
        assert [what for what in left.await_gone() if "shared memory sem." not in what] == []
