"""A stream of lines becomes a job: parsed, checked for double ids, staged, and committed all at once."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from redis.asyncio import Redis
from redis.exceptions import RedisError

from producer.intake.digest import JobDigest
from producer.intake.lines import Line, numbered_lines
from producer.intake.rows import Reject, parse_line
from producer.intake.unique import SeenIds
from producer.record.connection import REACH_SECONDS, heed_cancel
from producer.record.jobs import JobOptions, Submission, status
from producer.record.models import JobState, Outcome, RowFault

#: How files begin that people submit by mistake.
_OTHER_KINDS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK": "a zip archive",
    b"PAR1": "Parquet",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"[": "one JSON array",
}


class DuplicateIds(Exception):  # noqa: N818 - a finding about the input
    """Two lines have one custom_id; the message names both."""


class NothingReadable(Exception):  # noqa: N818 - a finding about the input
    """Not one line can be used; the message says why the first cannot."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submission. `rows` counts all non-blank lines, the `invalid` ones included."""

    job_id: str
    state: JobState
    rows: int
    invalid: int
    resumed: bool


async def submit_lines(
    redis: Redis,
    stream: BinaryIO,
    *,
    model: str,
    name: str,
    new: bool,
    options: JobOptions | None = None,
    defaults: dict[str, Any] | None = None,
    say: Callable[[str], Any] = lambda _: None,
) -> Submitted:
    """Submit every line of `stream` as one job; memory does not grow with it.

    The same rows with the same `defaults` (parameters of every row that does not say otherwise) for the same model
    give the job that was made of them before (`resumed`), unless `new`; it keeps the options that it has. `say` hears
    when Redis goes away and is waited for.

    Raises:
        DuplicateIds, NothingReadable: the input is refused; nothing of it stays.
        SubmissionLost: Redis lost what it had got; nothing of it can run.
        redis.exceptions.RedisError: Redis failed, and most likely nothing of it can run; the same again tells.
    """
    staged = await Submission.begin(redis, model=model, name=name, options=options, defaults=defaults, say=say)
    try:
        digest = await _stage(staged, stream)
        heed_cancel()  # an interrupted submission must not end as a job
        job_id = await staged.commit(digest.hexdigest(model, defaults or {}), insist=new)
    except BaseException:
        with suppress(RedisError, TimeoutError):  # away: `sweep` does it, a day later
            async with asyncio.timeout(REACH_SECONDS):
                await staged.discard()
        raise
    found = None
    with suppress(RedisError):  # away again: the job is there all the same
        found = await status(redis, job_id)
    state = found.state if found else JobState.QUEUED
    return Submitted(job_id, state, staged.rows, staged.invalid, resumed=job_id != staged.job_id)


async def _stage(staged: Submission, stream: BinaryIO) -> JobDigest:
    digest = JobDigest()
    first_fault: tuple[int, RowFault] | None = None
    first_bytes = b""
    with SeenIds() as seen:
        for line in numbered_lines(stream):
            row = parse_line(line, staged.rows)
            if row.custom_id is not None:
                _refuse_duplicate(row.custom_id, line.number, seen.add(row.custom_id, line.number))
            if isinstance(row, Reject):
                if first_fault is None:
                    first_fault = line.number, row.fault
                    first_bytes = line.data[:4] if isinstance(line, Line) else b""
                digest.update_refused(line)
                await staged.refuse(Outcome.failed_row(staged.rows, line.number, row.custom_id, row.fault))
            else:
                text = row.to_json()
                digest.update(text)
                await staged.add(row, text)
    if staged.rows == staged.invalid:
        if first_fault is None:
            raise NothingReadable("there are no rows in it")
        number, fault = first_fault
        raise NothingReadable(
            f"none of its {staged.rows} rows can be used; line {number}: {fault.message}{_hint(first_bytes)}"
        )
    return digest


def _hint(first_bytes: bytes) -> str:
    """What a file that is no JSON lines seems to be."""
    for start, kind in _OTHER_KINDS.items():
        if first_bytes.startswith(start):
            return f" (this looks like {kind}; JSON lines in UTF-8 are expected)"
    return ""


def _refuse_duplicate(custom_id: str, line: int, earlier: int | None) -> None:
    if earlier is not None:
        raise DuplicateIds(f"custom_id {custom_id!r} is on line {earlier} and again on line {line}")
