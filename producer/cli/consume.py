"""`producer results --consume`: results move from Redis into a file while the job runs."""

import asyncio
from pathlib import Path

from redis.asyncio import Redis

from producer.cli.common import ExitCode, Refused, find_job, say
from producer.cli.consumed_file import ConsumedFile
from producer.cli.waiting import POLL_SECONDS, Doubts, stopped_itself
from producer.record import consume, jobs
from producer.record.consume import Batch


async def consume_into(redis: Redis, job_id: str, path: Path) -> int:
    """Move every result of the job into the file at `path`, until the job has ended or has paused itself.

    Each is in the file, on the disk, before it leaves Redis; and it is there once, whatever is killed meanwhile.

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
                say(f"{batch.consumed} of {job.rows} rows of job {job_id} ({job.state}) are in {path}")
                return ExitCode.FINE
            else:
                await doubts.patiently(doubts.voice, redis, job)
                if stopped_itself(job):
                    return ExitCode.SOME_ROWS_FAILED
                await asyncio.sleep(POLL_SECONDS)


def _put(file: ConsumedFile, path: Path, batch: Batch) -> str:
    try:
        return file.put(batch)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; no row is lost, the same command goes on from here") from None
