"""A template that never ends is ended, and the row that brought it is told from those that waited behind it."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from worker.engine.stuck_templates import EndlessTemplate, StuckTemplates, Work

#: How long a template may take here, in seconds.
LIMIT_S = 0.5


class Pool(Executor):
    """As vLLM's: the threads within are replaced when a template has run out of time; those waiting keep theirs."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.inner = ThreadPoolExecutor(workers)
        self.threads: set[threading.Thread] = set()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = self.inner.submit(function, *args, **kwargs)
        self.threads |= self.inner._threads  # to see that they end
        return future

    def replace(self) -> None:
        self.inner.shutdown(wait=False)
        self.inner = ThreadPoolExecutor(self.workers)

    def close(self) -> None:
        """Fails when a thread is left."""
        self.inner.shutdown(wait=False)
        for thread in self.threads:
            thread.join(5)
        assert not any(thread.is_alive() for thread in self.threads)


class Renderer:
    """Has a pool where vLLM's has it, and gives up on a template as vLLM does."""

    def __init__(self, workers: int = 1) -> None:
        self._executor = Pool(workers)
        self.templates = StuckTemplates(self, LIMIT_S)

    async def row(self, *works: Callable[[], object]) -> object:
        """One row after another's work in the threads; the result of the last."""
        return await self.templates.watch(self._serve(*works))

    async def _serve(self, *works: Callable[[], object]) -> object:
        said: object = None
        for work in works:
            rendering = asyncio.get_running_loop().run_in_executor(self._executor, work)
            try:
                said = await asyncio.wait_for(rendering, LIMIT_S)
            except TimeoutError:
                self._executor.replace()
                raise
        return said


def endless() -> None:
    while True:
        time.sleep(0.001)


def taking(seconds: float) -> Callable[[], str]:
    def render() -> str:
        time.sleep(seconds)
        return "rendered"

    return render


async def in_turn(renderer: Renderer, *works: Callable[[], object], apart_s: float = 0.1) -> list[object]:
    """How rows end that come one soon after another."""
    rows = []
    for work in works:
        rows.append(asyncio.create_task(renderer.row(work)))
        await asyncio.sleep(apart_s)
    return list(await asyncio.gather(*rows, return_exceptions=True))


async def test_a_row_whose_template_ran_for_the_whole_limit_is_at_fault_and_its_template_ends() -> None:
    renderer = Renderer()
    with pytest.raises(EndlessTemplate):
        await renderer.row(endless)
    assert await renderer.row(taking(0)) == "rendered"
    renderer._executor.close()


async def test_of_rows_that_wait_behind_it_none_is_at_fault_and_the_first_gets_its_turn() -> None:
    renderer = Renderer()
    stuck, *behind = await in_turn(renderer, endless, taking(0), taking(0), apart_s=0.05)
    assert isinstance(stuck, EndlessTemplate)
    assert all(end == "rendered" or type(end) is TimeoutError for end in behind)
    renderer._executor.close()


async def test_each_of_several_endless_templates_is_ended_and_found_at_fault_sooner_or_later() -> None:
    """The second gets its turn in threads that vLLM has left, so that nobody else looks after it."""
    renderer = Renderer()
    ends = await in_turn(renderer, endless, endless, endless, apart_s=0.2)
    assert isinstance(ends[0], EndlessTemplate)
    assert {type(end) for end in ends} <= {EndlessTemplate, TimeoutError}
    for end in ends:
        if isinstance(end, TimeoutError):
            with pytest.raises(EndlessTemplate):
                await renderer.row(endless)
    renderer._executor.close()


async def test_templates_that_end_are_not_at_fault_however_long_they_waited() -> None:
    """The second runs when its time is over, and has waited for most of it; the third waits."""
    renderer = Renderer()
    ends = await in_turn(renderer, *[taking(0.6 * LIMIT_S)] * 3, apart_s=0)
    assert [end if isinstance(end, str) else type(end) for end in ends] == ["rendered", TimeoutError, TimeoutError]
    renderer._executor.close()


async def test_with_several_threads_only_the_stuck_one_is_stopped() -> None:
    renderer = Renderer(workers=2)
    stuck = asyncio.create_task(renderer.row(endless))
    await asyncio.sleep(0.7 * LIMIT_S)

    def steps() -> str:
        until = time.monotonic() + 0.5 * LIMIT_S
        while time.monotonic() < until:
            time.sleep(0.001)
        return "rendered"

    beside = asyncio.create_task(renderer.row(steps))
    with pytest.raises(EndlessTemplate):
        await stuck
    assert not beside.done()
    assert await beside == "rendered"
    renderer._executor.close()


async def test_a_cancelled_row_leaves_nothing_running() -> None:
    renderer = Renderer()
    row = asyncio.create_task(renderer.row(endless))
    await asyncio.sleep(0.05)
    row.cancel()
    with pytest.raises(asyncio.CancelledError):
        await row
    assert await renderer.row(taking(0)) == "rendered"
    renderer._executor.close()


async def test_what_is_of_no_row_is_let_alone() -> None:
    renderer = Renderer()
    with pytest.raises(EndlessTemplate):
        await renderer.row(endless)
    assert await asyncio.get_running_loop().run_in_executor(renderer._executor, taking(0)) == "rendered"
    renderer._executor.close()


def test_work_that_was_stopped_before_it_began_does_not_begin() -> None:
    work = Work()
    assert not work.stop()
    with pytest.raises(CancelledError):
        work.run(lambda: pytest.fail("it began"))


def test_work_that_has_ended_cannot_be_stopped() -> None:
    work = Work()
    assert work.run(lambda: "done") == "done"
    assert work.since is None
    assert not work.stop()


def test_a_stop_never_reaches_the_threads_next_work() -> None:
    """However the stop falls beside the work's end; many times, for it is a race."""
    ends = {"done": 0, "stopped": 0}
    with ThreadPoolExecutor(1) as pool:
        for turn in range(2000):
            work, begun = Work(), threading.Event()

            def short(begun: threading.Event = begun, steps: int = turn % 40) -> str:
                begun.set()
                for _ in range(steps):
                    time.sleep(0)
                return "done"

            mine, next_one = pool.submit(work.run, short), pool.submit(sum, range(200))
            begun.wait()
            work.stop()
            assert next_one.result(timeout=10) == 19900
            ends["stopped" if isinstance(mine.exception(), CancelledError) else "done"] += 1
    assert min(ends.values()) > 0


def test_a_stop_that_the_work_swallows_is_over_with_the_work() -> None:
    work, begun = Work(), threading.Event()

    def deaf() -> str:
        begun.set()
        try:
            endless()
        except BaseException:
            return "swallowed"
        return "never"

    with ThreadPoolExecutor(1) as pool:
        mine, next_one = pool.submit(work.run, deaf), pool.submit(lambda: "next")
        begun.wait()
        assert work.stop()
        assert (mine.result(timeout=10), next_one.result(timeout=10)) == ("swallowed", "next")
