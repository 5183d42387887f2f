"""Dead engines are replaced and nobody notices."""

import asyncio
from collections.abc import Callable

import pytest

from producer.record.models import COMPLETIONS_URL, Answer, Row
from worker.backoff import Backoff
from worker.engine.protocol import EngineDead, EngineDown, EngineStartError, RowError
from worker.engine.supervisor import EngineSupervisor

_FAILURES = [EngineStartError("no memory"), EngineDead("killed"), OSError(28, "disk full")] * 2
ROW = Row(0, 1, "a", COMPLETIONS_URL, {"prompt": "x"})


class Scripted:
    """An engine that does what a test tells it."""

    capacity = 3

    def __init__(self, name: str, start: Exception | None = None, answer: Exception | None = None) -> None:
        self.name, self._start, self._answer = name, start, answer
        self.starts = self.closes = self.asked = 0
        self.jobs: list[str] = []
        self.go, self.died = asyncio.Event(), asyncio.Event()

    async def start(self) -> None:
        self.starts += 1
        if self._start:
            raise self._start

    async def answer(self, row: Row, job: str = "") -> Answer:
        self.asked += 1
        self.jobs.append(job)
        gone = asyncio.create_task(self.died.wait())
        answered = asyncio.create_task(self.go.wait())
        await asyncio.wait({gone, answered}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        answered.cancel()
        if self.died.is_set():
            raise EngineDead("died")
        if self._answer:
            raise self._answer
        return Answer({"by": self.name}, 1, 1)

    async def wait_dead(self) -> str:
        await self.died.wait()
        return f"{self.name} had enough"

    async def close(self) -> None:
        self.closes += 1


def supervise(*engines: Scripted, **hooks: Callable[..., None]) -> EngineSupervisor:
    script = iter(engines)
    return EngineSupervisor(lambda: next(script), backoff=Backoff(0.001, 0.002), **hooks)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_rows_that_died_with_an_engine_are_the_callers_and_later_ones_go_to_the_next() -> None:
    first, second = Scripted("first"), Scripted("second")
    ups: list[bool] = []
    restarts: list[int] = []
    supervisor = supervise(first, second, on_up=ups.append, on_restart=lambda: restarts.append(1))
    await supervisor.start()
    rows = [asyncio.create_task(supervisor.answer(ROW, job)) for job in "abcde"]
    await until(lambda: first.asked == 5)
    assert first.jobs == list("abcde")
    first.died.set()
    assert {type(end) for end in await asyncio.gather(*rows, return_exceptions=True)} == {EngineDead}
    with pytest.raises(EngineDown):
        await supervisor.answer(ROW)
    await asyncio.wait_for(supervisor.ready(), 5)
    again = [asyncio.create_task(supervisor.answer(ROW)) for _ in range(5)]
    await until(lambda: second.asked == 5)
    second.go.set()
    assert [(await row).body for row in again] == [{"by": "second"}] * 5
    assert (supervisor.restarts, restarts, ups) == (1, [1], [True, False, True])
    assert (first.closes, second.closes) == (1, 0)
    await supervisor.close()
    assert second.closes == 1


async def test_an_idle_engine_that_dies_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Scripted("first"), Scripted("second")
    supervisor = supervise(first, second)
    await supervisor.start()
    first.died.set()
    await until(lambda: supervisor.restarts == 1)
    assert "first had enough" in caplog.text
    assert "the engine is back" in caplog.text
    await supervisor.close()


async def test_an_engine_that_gives_up_on_a_row_is_replaced_though_it_says_nothing() -> None:
    first, second = Scripted("first", answer=EngineDead("stopped")), Scripted("second")
    first.go.set()
    second.go.set()
    supervisor = supervise(first, second)
    await supervisor.start()
    with pytest.raises(EngineDead):
        await asyncio.wait_for(supervisor.answer(ROW), 5)
    await asyncio.wait_for(supervisor.ready(), 5)
    assert (await asyncio.wait_for(supervisor.answer(ROW), 5)).body == {"by": "second"}
    await supervisor.close()


async def test_a_row_error_is_the_callers() -> None:
    engine = Scripted("only", answer=RowError("bad", "it is bad"))
    engine.go.set()
    supervisor = supervise(engine)
    await supervisor.start()
    with pytest.raises(RowError):
        await supervisor.answer(ROW)
    assert supervisor.restarts == 0
    await supervisor.close()


async def test_a_first_start_that_cannot_succeed_is_given_up() -> None:
    engine = Scripted("only", start=EngineStartError("no such model"))
    supervisor = supervise(engine)
    with pytest.raises(EngineStartError, match="no such model"):
        await supervisor.start()
    await supervisor.close()
    assert engine.closes == 1


async def test_a_first_start_that_is_killed_is_tried_again() -> None:
    engines = [Scripted("killed", start=EngineDead("killed")), Scripted("fine")]
    supervisor = supervise(*engines)
    await supervisor.start()
    assert [engine.starts for engine in engines] == [1, 1]
    assert supervisor.restarts == 0
    await supervisor.close()


async def test_restarts_never_give_up() -> None:
    failing = [Scripted("f", start=error) for error in _FAILURES]
    first, last = Scripted("first"), Scripted("last")
    last.go.set()
    supervisor = supervise(first, *failing, last)
    await supervisor.start()
    row = asyncio.create_task(supervisor.answer(ROW))
    await until(lambda: first.asked == 1)
    first.died.set()
    with pytest.raises(EngineDead):
        await asyncio.wait_for(row, 5)
    await asyncio.wait_for(supervisor.ready(), 5)
    assert (await asyncio.wait_for(supervisor.answer(ROW), 5)).body == {"by": "last"}
    assert supervisor.restarts == 1
    assert all(engine.closes == 1 for engine in failing)
    await supervisor.close()


async def test_close_while_restarting_begins_no_row() -> None:
    first = Scripted("first")
    supervisor = EngineSupervisor(iter([first]).__next__, backoff=Backoff(60, 60))
    await supervisor.start()
    first.died.set()
    await until(lambda: first.closes == 1)
    await supervisor.close()
    with pytest.raises(EngineDown):
        await asyncio.wait_for(supervisor.answer(ROW), 1)


async def test_a_cancelled_row_is_cancelled_in_the_engine() -> None:
    engine = Scripted("only")
    supervisor = supervise(engine)
    await supervisor.start()
    row = asyncio.create_task(supervisor.answer(ROW))
    await until(lambda: engine.asked == 1)
    row.cancel()
    with pytest.raises(asyncio.CancelledError):
        await row
    assert supervisor.capacity == 3
    await supervisor.close()
