"""A signal while a file is read, and while the event loop is at work."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from given_lines import GivenLines

from producer.intake.interrupts import Interrupts
from producer.intake.lines import Line

LINES = b'{"a": 1}\n{"a": 2}\n{"a": 3}\n'


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


class Ringing(GivenLines):
    """While its second line is read, a signal comes."""

    def lines(self) -> Iterator[Line]:  # type: ignore[override]
        for number, line in enumerate(super().lines()):
            if number == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            yield line  # type: ignore[misc]


async def test_a_read_is_broken_off_at_once() -> None:
    interrupts = Interrupts()
    lines = interrupts.watched(Ringing(LINES)).lines()
    next(lines)
    with pytest.raises(KeyboardInterrupt):
        next(lines)
    await asyncio.sleep(0)
    assert not interrupts.came


async def test_between_reads_it_is_remembered_until_the_next() -> None:
    interrupts = Interrupts()
    lines = interrupts.watched(GivenLines(LINES)).lines()
    next(lines)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        next(lines)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not interrupts.came, "once is enough"


async def test_while_the_event_loop_works_the_task_is_cancelled() -> None:
    seen: list[Interrupts] = []

    async def work() -> None:
        seen.append(Interrupts())
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(10)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.create_task(work()), 5)
    assert seen[0].came


async def test_a_source_is_what_it_was() -> None:
    watched = Interrupts().watched(GivenLines(LINES, name="x", reopens=False))
    assert (watched.name, watched.reopens) == ("x", False)
    assert list(watched.lines()) == list(GivenLines(LINES).lines())
