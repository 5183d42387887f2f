"""Reading results: the lines of a job's rows that have ended, a page at a time, and none of them removed."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Literal

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from producer.record import scripts
from producer.record.keys import key

Order = Literal["input", "done"]
"""`input` follows the submitted files (rows without a result yet, or any more, are left out); `done` is the order in
which rows ended."""

#: Rows looked at in one round trip, and about how many bytes of their results. Redis does nothing else meanwhile.
_ROWS = 2000
_BYTES = 2 << 20


class Moved(Exception):  # noqa: N818 - a finding about the record
    """What was read before is not there any more: rows were retried or consumed, or Redis came back older."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins.

    Attributes:
        at: how many rows are before it in the order that is read.
        mark: SHA-1, in hex, of the line before it, by which a record is known to be the one that was read so far; ""
            where nothing was read, and in the order `input`.
    """

    at: int = 0
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Some result lines.

    Attributes:
        lines: lines of the results file, UTF-8, each with its newline.
        count: how many they are.
        end: where the next page begins; where this one began, if there is nothing more now.
    """

    lines: bytes
    count: int
    end: Place


def mark(line: bytes) -> str:
    """The `Place.mark` after a line, which comes without its newline."""
    return hashlib.sha1(line).hexdigest()  # noqa: S324 - what Redis's scripts can compute; nobody gains by a collision


async def page(redis: Redis, job_id: str, place: Place, *, order: Order) -> Page | None:
    """The next lines from a place on, as many as fit; None: there is no such job.

    Raises:
        Moved: in the order `done`, the line before that place is not the one that it was.
        redis.exceptions.ResponseError: the results are damaged, or another error of Redis.
    """
    asked = place.mark if order == "done" else ""
    found = await scripts.run(redis, "read", job_id, order, place.at, _ROWS, _BYTES, asked, raw=True)
    if found is None:
        return None
    if found == -1:
        raise Moved(f"rows of job {job_id} were retried or consumed while it was read, or Redis came back older")
    at, count, lines = found
    if lines.count(b"\n") != count:
        raise ResponseError(f"results of job {job_id} are damaged: a line has a line break in it")
    if order == "done" and at != place.at:
        whole = count == at - place.at  # else the line before the next page may be one that somebody has removed
        asked = mark(lines[lines.rfind(b"\n", 0, -1) + 1 : -1]) if whole else ""
    return Page(lines, count, Place(at, asked))


async def first(redis: Redis, job_id: str, *, order: Order) -> Place:
    """Where the first page begins."""
    if order == "input":
        return Place()
    # What was consumed has a place, too, but no lines any more.
    return Place(int(await redis.execute_command("HGET", key("job", job_id), "consumed") or 0))


async def pages(redis: Redis, job_id: str, *, order: Order) -> AsyncGenerator[Page, None]:
    """All lines that there are now, from the start; while one page is used the next is read.

    Raises:
        Moved: rows were retried or consumed meanwhile, so that some may have been left out or read twice.
    """
    place = await first(redis, job_id, order=order)
    ahead = asyncio.create_task(page(redis, job_id, place, order=order))
    try:
        while (found := await ahead) is not None and found.end.at != place.at:
            place = found.end
            ahead = asyncio.create_task(page(redis, job_id, place, order=order))
            await asyncio.sleep(0)  # it is sent now
            if found.count:
                yield found
    finally:
        ahead.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await ahead


async def results(redis: Redis, job_id: str, *, order: Order) -> AsyncIterator[str]:
    """The lines of `pages` one by one, as text without newline; what is no text comes as lone surrogates.

    Raises:
        Moved: as `pages`.
    """
    async with aclosing(pages(redis, job_id, order=order)) as found:
        async for each in found:
            for line in each.lines.decode(errors="surrogateescape").split("\n")[:-1]:
                yield line
