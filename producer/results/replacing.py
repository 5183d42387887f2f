"""Which files results may replace: those that results of the same job were written to before."""

import json
from pathlib import Path
from typing import Any

from producer.errors import Refused
from producer.record.jobs import JobStatus
from producer.results.outputs import Stream
from producer.results.sinks import Wanted, manifest_beside


def check_replaced(job: JobStatus, wanted: Wanted, *, overwrite: bool) -> None:
    """See that no file is replaced which may be needed: the rows that were submitted, say, or another job's results.

    What a file is, the manifest beside it says.

    Raises:
        Refused: a file is there, and is none that may be replaced.
    """
    ours = _written_before(job, wanted.results)
    for path in wanted.files:
        if not (path.is_file() and path.stat().st_size):
            continue
        if job.consumed:
            raise Refused(
                f"{path} is not replaced: {job.consumed} rows of job {job.job_id} were consumed and are in such a "
                f"file only (`--consume` goes on with it)"
            )
        if path.name not in ours and not overwrite:
            raise Refused(
                f"{path} is there, and no manifest says that it has results of job {job.job_id}: name another file, or "
                f"--overwrite replaces it"
            )


def _written_before(job: JobStatus, results: Path | Stream) -> set[str]:
    """The names of the files that the manifest beside `results` has, if it is this job's."""
    if not isinstance(results, Path):
        return set()
    try:
        manifest: Any = json.loads(manifest_beside(results).read_bytes())
        of_this_job = manifest["job"]["job_id"] == job.job_id
        return {str(file["name"]) for file in manifest["files"]} if of_this_job else set()
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return set()
