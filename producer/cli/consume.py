"""`producer results --consume`: results move from Redis into a file while the job runs."""

import asyncio
from pathlib import Path

from redis.asyncio import Redis

from producer.cli.common import ExitCode, Refused, find_job, say
from producer.cli.consumed_file import ConsumedFile
from producer.cli.waiting import Doubts
from producer.following import POLL_SECONDS
from producer.record import consume, jobs
from producer.record.consume import Batch
from producer.record.jobs import JobStatus
from producer.results.facts import add_manifest
from producer.results.outputs import Outputs
from producer.results.part import scanned
from producer.results.sinks import Wanted
from producer.stopped import stopped_itself


async def consume_into(redis: Redis, job_id: str, path: Path, *, manifest: bool) -> int:
    """Move every result of the job into the file at `path`, until the job has ended or has paused itself.

    Each is in the file, on the disk, before it leaves Redis; and it is there once, whatever is killed meanwhile. An
    ended job's file gets a `manifest` beside it.

    Raises:
        Refused: the file is not the one for this job, it cannot be written, or the job is gone.
    """
    doubts = Doubts()
    await find_job(redis, job_id)
    with ConsumedFile.opened(path, job_id) as file:
        if first := await doubts.patiently(consume.look, redis, job_id):
            file.missing(first)  # another job's file is refused before anything is set aside
        while True:
            job = await doubts.patiently(jobs.status, redis, job_id)  # before its rows: none ends in between
            batch = await doubts.patiently(consume.take, redis, job_id)
            if job is None or batch is None:
                raise Refused(f"job {job_id} is not in Redis any more: {path} gets no more of it")
            digest = _put(file, path, batch)
            if batch.lines:
                await doubts.patiently(consume.trim, redis, job_id, batch, digest)
            elif job.state.ended:
                if manifest:
                    await doubts.patiently(_add_manifest, redis, job, path)
                rows = counted(batch.consumed, job.rows, job.failed)
                say(f"{rows}, of job {job_id} ({job.state}) are in {path}")
                return ExitCode.FINE
            else:
                await doubts.patiently(doubts.voice, redis, job)
                if stopped_itself(job):
                    return ExitCode.SOME_ROWS_FAILED
                await asyncio.sleep(POLL_SECONDS)


def counted(rows: int, of: int, failed: int) -> str:
    """How many rows were written, in words."""
    return f"{rows} of {of} rows, {failed} of them failed"


async def _add_manifest(redis: Redis, job: JobStatus, path: Path) -> None:
    wanted = Wanted(path)
    assert wanted.manifest_path is not None
    with Outputs.opened() as outputs:
        tally, file = await asyncio.to_thread(scanned, path)
        await add_manifest(redis, outputs, wanted.manifest_path, job, tally, [file])
        outputs.commit()


def _put(file: ConsumedFile, path: Path, batch: Batch) -> str:
    try:
        return file.put(batch)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; no row is lost, the same command goes on from here") from None
