"""Results from Redis into files: counted, checked, and all of them or none."""

from contextlib import aclosing
from dataclasses import dataclass

from redis.asyncio import Redis

from producer.errors import ProducerError, Refused
from producer.record import jobs
from producer.record.fetch import Moved, Order, pages
from producer.record.jobs import JobStatus
from producer.record.models import JobState
from producer.results.facts import add_manifest
from producer.results.outputs import Outputs
from producer.results.shapes import Tally
from producer.results.sinks import Sinks, Wanted


class RowsMissing(ProducerError):  # noqa: N818 - a finding about the record
    """Redis has fewer results than rows that have ended, or more."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was written: of which job, as it was then, and how many lines."""

    job: JobStatus
    tally: Tally


async def fetch(redis: Redis, job_id: str, wanted: Wanted, *, order: Order, partial: bool = False) -> Fetched:
    """Write the results of a job; memory does not grow with it.

    Args:
        redis: where the job is.
        job_id: which.
        wanted: what is written. Files appear at the end, whole and on the disk, the manifest last.
        order: of the lines.
        partial: write what there is of a job that has not ended, too.

    Raises:
        Refused: the job has not ended, is gone, or changed meanwhile; or that cannot be written.
        RowsMissing: there are not as many lines as there must be. No file is written.
        OSError: a file cannot be written.
    """
    before = await _status(redis, job_id)
    if not partial and not before.state.ended:
        raise Refused(
            f"job {job_id} is {before.state.value}, {before.done} of its {before.rows} rows have ended: "
            f"`--partial` writes what there is, `--follow` waits for the rest"
        )
    with Outputs.opened() as outputs:
        sinks = Sinks(outputs, wanted)
        try:
            async with aclosing(pages(redis, job_id, order=order)) as found:
                async for page in found:
                    sinks.write(page.lines)
        except Moved as moved:
            raise Refused(f"{moved}; run the same command again") from None
        job = await _status(redis, job_id)
        if not partial:
            _check_still(before, job)
            check_count(job, sinks.tally)
        files = sinks.close()
        if (path := wanted.manifest_path) is not None:
            await add_manifest(redis, outputs, path, job, sinks.tally, files)
        outputs.commit()
    return Fetched(job, sinks.tally)


def check_count(job: JobStatus, tally: Tally) -> None:
    """See that each row of an ended job that is not consumed has its line.

    Raises:
        RowsMissing: there are fewer, or more.
    """
    ended = job.rows if job.state is JobState.COMPLETED else job.done
    missing = ended - job.consumed - tally.lines
    if missing:
        what = f"{missing} are missing" if missing > 0 else f"{-missing} lines are too many"
        raise RowsMissing(
            f"job {job.job_id} has {tally.lines} results where {ended - job.consumed} rows have ended: {what}, so "
            f"somebody has changed its keys in Redis, and no file is written; `--partial` writes what there is"
        )


async def _status(redis: Redis, job_id: str) -> JobStatus:
    found = await jobs.status(redis, job_id)
    if found is None:
        raise Refused(f"there is no job {job_id!r} (any more)")
    return found


def _check_still(before: JobStatus, after: JobStatus) -> None:
    def content(job: JobStatus) -> tuple[object, ...]:
        return (job.state, job.rows, job.done, job.consumed, job.ended)

    if content(before) != content(after):
        raise Refused(
            f"job {before.job_id} changed while it was read (rows were retried, consumed or appended): "
            f"run the same command again"
        )
