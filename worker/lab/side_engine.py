"""A side that gives all rows to an engine at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from producer.record.models import Answer, Row
from worker.engine.vllm import VllmEngine
from worker.lab import numbers, prompts
from worker.lab.follow import StageLog
from worker.lab.numbers import Request
from worker.lab.side_common import Answered, TokenTimes, Told, texts_of

#: Tokens of each answer in the run before the first turn, which meets what happens only once.
_WARM_UP_TOKENS = 4


@asynccontextmanager
async def opened(told: Told) -> AsyncIterator[Callable[[], Awaitable[Answered]]]:
    """The engine from start to end. It has a row at hand for each place that becomes free."""
    rows = prompts.from_file(told.rows)
    in_flight, mode = told.options.max_num_seqs, told.options.mode
    log, times = StageLog(), TokenTimes()
    engine = VllmEngine(told.options, log)
    await engine.start()

    async def turn() -> Answered:
        log.take()
        requests, answers = await _answer(engine, rows)
        records = log.take()
        measured = numbers.turn(mode, records, requests, in_flight, times.take())
        return Answered(measured, texts_of(answer.body for answer in answers), records)

    try:
        await _answer(
            engine, [replace(row, body={**row.body, "max_tokens": _WARM_UP_TOKENS}) for row in rows[:in_flight]]
        )
        times.take()
        yield turn
    finally:
        await engine.close()


async def _answer(engine: VllmEngine, rows: Sequence[Row]) -> tuple[list[Request], list[Answer]]:
    async def one(row: Row) -> tuple[Request, Answer]:
        given = time.monotonic()
        answer = await engine.answer(row)
        return Request(given, time.monotonic(), answer.completion_tokens), answer

    pairs = await asyncio.gather(*map(one, rows))
    return [request for request, _ in pairs], [answer for _, answer in pairs]
