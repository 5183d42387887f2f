"""What the record knows of where results come from, and the manifest that is made of it."""

import asyncio
import json
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from redis.asyncio import Redis

from producer.record import jobs, provenance
from producer.record.jobs import JobStatus
from producer.record.provenance import EngineNote
from producer.results.manifest import WrittenFile, manifest
from producer.results.outputs import Outputs
from producer.results.shapes import Tally

#: How long workers may take to note the last rows of a job that has just ended (seconds).
_NOTES_SECONDS = 3.0
_POLL_SECONDS = 0.1


async def add_manifest(
    redis: Redis, outputs: Outputs, path: Path, job: JobStatus, tally: Tally, files: Sequence[WrittenFile]
) -> None:
    """Write the manifest of these files among the outputs."""
    identity, defaults = await jobs.asked(redis, job.job_id)
    made = manifest(
        job,
        identity=identity,
        defaults=defaults,
        engines=await _engines(redis, job),
        tally=tally,
        files=files,
        producer=metadata.version("minedraft-worker"),
        written=time.time(),
    )
    outputs.add(path).write((json.dumps(made, ensure_ascii=False, indent=2) + "\n").encode(errors="replace"))


async def _engines(redis: Redis, job: JobStatus) -> list[EngineNote]:
    """The notes on the job's engines; those of its last rows are waited for, not long."""
    until = time.monotonic() + _NOTES_SECONDS
    while True:
        found = await provenance.engines(redis, job.job_id)
        noted = sum(each.rows for each in found) >= job.done - job.invalid
        old = job.ended is None or time.time() - job.ended > _NOTES_SECONDS
        if noted or old or time.monotonic() > until:
            return found
        await asyncio.sleep(_POLL_SECONDS)
