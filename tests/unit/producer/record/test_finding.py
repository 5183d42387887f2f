"""Which job a name means."""

from dataclasses import replace

import pytest

from producer.errors import NoSuchJob, Refused
from producer.record.finding import by_name
from producer.record.jobs import JobStatus
from producer.record.models import JobState

JOB = JobStatus("a", JobState.COMPLETED, "target", "rows", *(0,) * 9, "", None, None, None)  # type: ignore[arg-type]


def jobs(*states: JobState) -> list[JobStatus]:
    other = replace(JOB, job_id="other", name="other")
    return [other, *(replace(JOB, job_id=f"j{number}", state=state) for number, state in enumerate(states))]


@pytest.mark.parametrize(
    ("states", "meant"),
    [
        ([JobState.COMPLETED], "j0"),
        ([JobState.RUNNING], "j0"),
        ([JobState.COMPLETED, JobState.PAUSED, JobState.CANCELLED], "j1"),
        ([JobState.COMPLETED, JobState.SUBMITTING], "j0"),
        ([JobState.SUBMITTING, JobState.CANCELLED, JobState.RUNNING, JobState.SUBMITTING], "j2"),
        ([JobState.SUBMITTING], "j0"),
    ],
)
def test_the_only_one_or_the_only_one_that_has_not_ended(states: list[JobState], meant: str) -> None:
    assert by_name(jobs(*states), "rows").job_id == meant


def test_what_is_not_clear_is_refused_with_the_ids() -> None:
    with pytest.raises(NoSuchJob, match="there is no job 'rows'"):
        by_name(jobs(), "rows")
    with pytest.raises(Refused, match=r"2 jobs are called 'rows': j0 \(running\), j1 \(queued\); name one by its id"):
        by_name(jobs(JobState.RUNNING, JobState.QUEUED), "rows")
    with pytest.raises(Refused, match=r"2 jobs are called 'rows': j1 \(completed\), j2 \(completed\); name one by"):
        by_name(jobs(JobState.SUBMITTING, JobState.COMPLETED, JobState.COMPLETED), "rows")
    with pytest.raises(Refused, match=r"7 jobs are called 'rows': j2 .*j6 \(completed\), and 2 older ones; name one"):
        by_name(jobs(*[JobState.COMPLETED] * 7), "rows")
