"""Which files results may replace."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from producer.errors import Refused
from producer.record.jobs import JobStatus
from producer.record.models import JobState
from producer.results.replacing import check_replaced
from producer.results.sinks import Wanted

JOB = JobStatus("a", JobState.COMPLETED, "target", "rows", *(0,) * 9, "", None, None, None)  # type: ignore[arg-type]


def written(folder: Path, job_id: str = "a") -> Wanted:
    """Results and errors of a job, and the manifest beside them."""
    wanted = Wanted(folder / "out.jsonl", folder / "errors.jsonl")
    for path in wanted.files:
        path.write_text("{}\n")
    files = [{"name": path.name} for path in wanted.files]
    (folder / "out.jsonl.manifest.json").write_text(json.dumps({"job": {"job_id": job_id}, "files": files}))
    return wanted


def test_what_this_job_wrote_is_replaced_and_what_is_not_there_or_empty_is_written(tmp_path: Path) -> None:
    check_replaced(JOB, written(tmp_path), overwrite=False)
    (tmp_path / "empty").touch()
    check_replaced(JOB, Wanted(tmp_path / "new", tmp_path / "empty"), overwrite=False)


@pytest.mark.parametrize(
    "manifest", [None, "", "[]", "{}", '{"job": 7}', '{"job": {"job_id": "a"}}', "[" * 100_000, "\xff"]
)
def test_a_file_that_no_manifest_gives_to_this_job_is_not(tmp_path: Path, manifest: str | None) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x"}\n')
    if manifest is not None:
        (tmp_path / "rows.jsonl.manifest.json").write_text(manifest, encoding="latin-1")
    wanted = Wanted(tmp_path / "rows.jsonl")
    with pytest.raises(
        Refused, match="no manifest says that it has results of job a: name another file, or --overwrite"
    ):
        check_replaced(JOB, wanted, overwrite=False)
    check_replaced(JOB, wanted, overwrite=True)


def test_another_job_s_results_are_not_nor_a_file_that_the_manifest_does_not_name(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"out\.jsonl is there"):
        check_replaced(JOB, written(tmp_path, "b"), overwrite=False)
    wanted = replace(written(tmp_path), errors=tmp_path / "rows.jsonl")
    (tmp_path / "rows.jsonl").write_text("{}\n")
    with pytest.raises(Refused, match=r"rows\.jsonl is there"):
        check_replaced(JOB, wanted, overwrite=False)


def test_a_file_that_may_have_consumed_rows_is_never(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not replaced"):
        check_replaced(replace(JOB, consumed=1), written(tmp_path), overwrite=True)
