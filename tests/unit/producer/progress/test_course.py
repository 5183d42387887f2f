"""A job's course, from look to look."""

import json
from dataclasses import replace

import pytest

from producer.cli.moment_text import one_line, worker_columns
from producer.progress import course
from producer.progress.course import Course, Moment
from producer.progress.workers import Effort, WorkerAtWork
from producer.record.fleet import WorkerCard, WorkerStats
from producer.record.jobs import JobStatus
from producer.record.models import JobState
from producer.record.provenance import EngineNote

JOB = JobStatus(
    job_id="j",
    state=JobState.RUNNING,
    model="m",
    name="n",
    rows=1000,
    done=0,
    failed=0,
    invalid=0,
    consumed=0,
    attempts_lost=0,
    prompt_tokens=0,
    completion_tokens=0,
    priority=0,
    reason="",
    created=1.0,
    started=2.0,
    ended=None,
)
EFFORT = Effort(10, 5, 50, 500, drafted=100, accepted=65, hidden_seconds=4, hideable_seconds=5)
STATS = WorkerStats(10, 5, 0, 16, 50, 500)
WORKER = WorkerAtWork(WorkerCard("host-1", "m", "psd", 2, "draining", "host", 1, STATS), EFFORT)


def job(done: int, state: JobState = JobState.RUNNING) -> JobStatus:
    return replace(JOB, state=state, done=done, prompt_tokens=4 * done, completion_tokens=10 * done)


def followed(seconds: int, start: int = 0) -> tuple[Course, Moment]:
    """Five rows a second."""
    seen = Course()
    for second in range(seconds + 1):
        moment = seen.see(second, job(start + 5 * second), [WORKER])
    return seen, moment


def test_a_job_that_goes_on() -> None:
    _, moment = followed(40, start=100)
    assert moment.rows_per_second == pytest.approx(5)
    assert moment.prompt_tokens_per_second == pytest.approx(20)
    assert moment.completion_tokens_per_second == pytest.approx(50)
    assert (moment.acceptance, moment.overlap) == (0.65, 0.8)
    assert moment.seconds_left == pytest.approx(140)
    said = "j: running, 300/1000 rows, 0 failed, 5 rows/s, 50 tokens/s out, 20 in, "
    assert one_line(moment) == said + "65% of drafts accepted, overlap 80%, about 2 min left"


def test_rows_that_end_for_the_first_time_took_from_the_start_of_the_job() -> None:
    """A batch that begins together ends together, more or less: its ends alone look fast."""
    seen = Course()
    seen.see(0, job(0, JobState.QUEUED), [])
    ends = {130: 40, 131: 80, 132: 120, 133: 160}  # begun at 100
    done = 0
    for second in range(100, 134):
        done = ends.get(second, done)
        moment = seen.see(second, job(done), [])
    assert moment.rows_per_second == pytest.approx(160 / 33, rel=0.2)
    assert moment.seconds_left == pytest.approx(840 / 160 * 33, rel=0.2)


def test_what_was_there_before_the_watching_is_no_pace() -> None:
    moment = Course().see(0, job(500), [])
    assert (moment.rows_per_second, moment.seconds_left) == (0, None)
    assert one_line(moment) == "j: running, 500/1000 rows, 0 failed, 0 rows/s, 0 tokens/s out, 0 in"


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.QUEUED])
def test_a_job_that_does_not_run_has_no_end_in_sight(state: JobState) -> None:
    seen, _ = followed(40)
    moment = seen.see(41, job(200, state), [])
    assert moment.seconds_left is None
    assert not seen.see(4000, job(200, state), []).stalled


def test_a_job_that_stalls() -> None:
    seen, _ = followed(40)
    moment = seen.see(80, job(200), [])
    assert moment.stalled
    assert (moment.rows_per_second, moment.seconds_left) == (0, None)
    assert one_line(moment).endswith("0 rows/s, 0 tokens/s out, 0 in, no row has ended for a while")


def note(drafted: int, accepted: int, hidden: float) -> EngineNote:
    times = {"verify_seconds": 20.0, "draft_seconds": 10.0, "hidden_seconds": hidden}
    return EngineNote(worker_id="w", model="m", mode="psd", drafted=drafted, accepted=accepted, **times)


def test_an_ended_job_is_told_over_its_whole_life() -> None:
    over = replace(job(1000, JobState.COMPLETED), invalid=20, failed=20, started=100.0, ended=140.0)
    moment = course.ended(over, [note(100, 60, 9), note(300, 180, 7)])
    assert moment.rows_per_second == 24.5
    assert moment.completion_tokens_per_second == 250
    assert (moment.acceptance, moment.overlap) == (0.6, 0.8)
    said = "j: completed, 1000/1000 rows, 20 failed, 24 rows/s, 250 tokens/s out, 100 in, "
    assert one_line(moment) == said + "60% of drafts accepted, overlap 80%"
    assert (course.ended(over, []).acceptance, course.ended(over, []).overlap) == (None, None)


def test_a_job_that_ended_before_it_started() -> None:
    moment = course.ended(
        replace(JOB, state=JobState.COMPLETED, rows=1, done=1, invalid=1, ended=3.0, started=None), []
    )
    assert (moment.rows_per_second, moment.completion_tokens_per_second) == (0, 0)


def test_a_moment_for_programs() -> None:
    _, moment = followed(40)
    said = json.loads(json.dumps(moment.to_json()))
    assert said["job_id"] == "j"
    assert (said["done"], said["rows"], said["rows_per_second"], said["seconds_left"]) == (200, 1000, 5.0, 160.0)
    assert (said["acceptance"], said["overlap"], said["stalled"]) == (0.65, 0.8, False)
    assert said["workers"] == [
        {
            "worker_id": "host-1",
            "mode": "psd",
            "state": "draining",
            "rows_in_flight": 16,
            "completion_tokens_per_second": 50.0,
            "acceptance": 0.65,
            "overlap": 0.8,
        }
    ]


def test_a_workers_line() -> None:
    drafts = ("65% of drafts accepted", "overlap 80%")
    assert worker_columns(WORKER) == ("host-1", "psd", "16 rows", "50 tokens/s", *drafts, "draining")
    silent = WorkerAtWork(WorkerCard("a\x1b[31m", "m", "ar", 2, "ready", "host", 1), Effort())
    assert worker_columns(silent) == ("a?[31m", "ar", "", "", "", "", "")
