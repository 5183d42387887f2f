"""What is written beside results: where they come from. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from producer.progress.workers import Effort, together
from producer.record.jobs import JobStatus
from producer.record.provenance import EngineNote
from producer.results.shapes import Tally

#: Grows when a field changes its meaning or goes away.
VERSION = 1


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of results as it is on the disk.

    Attributes:
        name: without its folder, so that the files can be moved together.
        holds: `results`, `answered` (where failed rows have a file of their own) or `failed`.
        format: `openai`, `flat` or `parquet`.
        lines: rows in it.
        bytes: its size.
        sha256: of its bytes, in hex.
    """

    name: str
    holds: str
    format: str
    lines: int
    bytes: int
    sha256: str


def manifest(
    job: JobStatus,
    *,
    identity: str | None,
    defaults: dict[str, Any] | None,
    engines: Sequence[EngineNote],
    tally: Tally,
    files: Sequence[WrittenFile],
    producer: str,
    written: float,
) -> dict[str, Any]:
    """The manifest of results, as JSON is made of it; `written` is a time in seconds since the epoch.

    ```
    manifest            number   1
    producer            string   the version of this program
    written             string   when, ISO 8601, UTC
    job                 object   job_id, name, identity (SHA-256 of rows, defaults and model), state, model,
                                 created, started, ended (ISO 8601, UTC; null for "not yet")
    rows                object   submitted, written (in these files), failed, refused (at submission, in failed, too),
                                 error_codes {code: rows}, consumed (before: in no file of these)
    tokens              object   prompt, completion
    sampling            object   the job's defaults; null where they are damaged. What a row says itself is in the row
    engines             array    one object for each worker that answered rows: `producer.record.provenance.EngineNote`
    lossless            boolean  all of them are; null where there is none
    acceptance_rate     number   accepted / drafted tokens, 0 to 1; null where nothing was drafted
    overlap             number   of the draft time that could be hidden, the share that was, 0 to 1: hidden_seconds /
                                 min(draft_seconds, verify_seconds), each added up over the engines; null likewise
    throughput          object   seconds (from the first claim to the last row), rows_per_second,
                                 completion_tokens_per_second; null where the job has not ended
    versions            object   {package: [each version that an engine ran]}
    files               array    one object for each file: `WrittenFile`
    ```
    """
    effort = together([Effort.noted(each) for each in engines])
    return {
        "manifest": VERSION,
        "producer": producer,
        "written": _time(written),
        "job": {
            "job_id": job.job_id,
            "name": job.name,
            "identity": identity,
            "state": job.state.value,
            "model": job.model,
            "created": _time(job.created),
            "started": _time(job.started),
            "ended": _time(job.ended),
        },
        "rows": {
            "submitted": job.rows,
            "written": tally.lines,
            "failed": tally.failed,
            "refused": job.invalid,
            "error_codes": dict(tally.codes.most_common()),
            "consumed": job.consumed,
        },
        "tokens": {"prompt": job.prompt_tokens, "completion": job.completion_tokens},
        "sampling": defaults,
        "engines": [asdict(each) for each in engines],
        "lossless": all(each.lossless for each in engines) if engines else None,
        "acceptance_rate": _rounded(effort.acceptance),
        "overlap": _rounded(effort.overlap),
        "throughput": _throughput(job),
        "versions": _versions(engines),
        "files": [asdict(each) for each in files],
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _throughput(job: JobStatus) -> dict[str, float] | None:
    if job.started is None or job.ended is None:
        return None
    seconds = max(job.ended - job.started, 1e-3)
    return {
        "seconds": round(seconds, 3),
        "rows_per_second": round((job.done - job.invalid) / seconds, 3),
        "completion_tokens_per_second": round(job.completion_tokens / seconds, 3),
    }


def _versions(engines: Sequence[EngineNote]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for each in engines:
        for package, version in each.versions.items():
            found.setdefault(package, set()).add(version)
    return {package: sorted(versions) for package, versions in sorted(found.items())}
