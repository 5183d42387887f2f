"""A side that gives rows straight to an engine."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from producer.record.models import Answer, Row
from worker.engine.protocol import Engine
from worker.engine.vllm import VllmEngine
from worker.lab import numbers, prompts
from worker.lab.follow import StageLog
from worker.lab.numbers import Request
from worker.lab.side_common import Answered, TokenTimes, Told, texts_of

#: Tokens of each answer in the run before the first turn, which meets what happens only once.
_WARM_UP_TOKENS = 4
#: Rows that wait in the engine for each that it answers. All at once would have thousands tokenized on the cores that
#: the engine computes on, before the first is answered; with fewer, a place could become free and find none.
_WAITING = 2


@asynccontextmanager
async def opened(told: Told) -> AsyncIterator[Callable[[], Awaitable[Answered]]]:
    """The engine from start to end. While there are rows, it has one at hand for each place that becomes free."""
    rows = prompts.from_file(told.rows)
    in_flight, mode = told.options.max_num_seqs, told.options.mode
    at_hand = (1 + _WAITING) * in_flight
    log, times = StageLog(), TokenTimes()
    jobs = map(str, itertools.count())  # a job a turn: nothing of the turn before is known
    engine = VllmEngine(told.options, log)
    await engine.start()

    async def turn() -> Answered:
        log.take()
        lost = log.lost
        requests, answers = await answer_all(engine, rows, at_hand, next(jobs))
        records = log.take()
        measured = numbers.turn(mode, records, requests, in_flight, times.take())
        measured = replace(measured, lost_records=(log.lost - lost) or None)
        return Answered(measured, texts_of(answer.body for answer in answers), records)

    try:
        short = [replace(row, body={**row.body, "max_tokens": _WARM_UP_TOKENS}) for row in rows[:in_flight]]
        await answer_all(engine, short, at_hand, next(jobs))
        times.take()
        yield turn
    finally:
        await engine.close()


async def answer_all(
    engine: Engine, rows: Sequence[Row], at_hand: int, job: str = ""
) -> tuple[list[Request], list[Answer]]:
    """Have rows answered, given in their order, as soon as the engine has fewer at hand than it may have.

    Args:
        engine: that runs.
        rows: all of them.
        at_hand: rows that it may have at once, those that it answers and those that wait in it.
        job: theirs.

    Returns:
        What each row's way looked like, and its answer, in the order of the rows.

    Raises:
        RowError: a row is at fault.
        EngineDead: the engine died.
    """
    found: dict[int, tuple[Request, Answer]] = {}
    waiting = iter(enumerate(rows))

    async def give() -> None:
        for index, row in waiting:  # shared: each takes the next one
            given = time.monotonic()
            answer = await engine.answer(row, job)
            found[index] = Request(given, time.monotonic(), answer.completion_tokens), answer

    await asyncio.gather(*(give() for _ in range(min(at_hand, len(rows)))))
    pairs = [found[index] for index in range(len(rows))]
    return [request for request, _ in pairs], [answer for _, answer in pairs]
