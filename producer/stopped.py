"""Jobs that have paused themselves: they go on only when a user says so."""

from producer.record.jobs import JobStatus
from producer.record.models import JobState


def stopped_itself(job: JobStatus) -> bool:
    """True where too many rows of the job failed; False where a user paused it."""
    return job.state is JobState.PAUSED and bool(job.reason)


def why_stopped(job: JobStatus) -> str:
    """One line for people: why, and what to do."""
    how = f"`producer resume {job.job_id}` goes on, `producer cancel {job.job_id}` ends it"
    return f"job {job.job_id} has paused itself: {job.reason}; {how}"
