"""A job's course: what is seen of it at one moment, told with what was seen before."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from producer.progress import eta
from producer.progress.pace import Pace
from producer.progress.workers import Effort, WorkerAtWork, together
from producer.record.jobs import JobStatus
from producer.record.models import JobState
from producer.record.provenance import EngineNote


@dataclass(frozen=True, slots=True)
class Moment:
    """A job as it is now. Rates are per second, shares 0 to 1, None where there is nothing to tell.

    Attributes:
        job: its counters.
        rows_per_second: rows that end; of an ended job, over its whole life, as the next two.
        prompt_tokens_per_second: of rows that end.
        completion_tokens_per_second: of rows that end.
        acceptance: the share of drafts that was accepted of late; of an ended job, of all of them.
        overlap: `Effort.overlap` of late; likewise.
        seconds_left: until the last row ends; None while nobody can know.
        stalled: no row has ended for much longer than usual.
        workers: those that serve the job's model.
    """

    job: JobStatus
    rows_per_second: float
    prompt_tokens_per_second: float
    completion_tokens_per_second: float
    acceptance: float | None
    overlap: float | None
    seconds_left: float | None
    stalled: bool
    workers: Sequence[WorkerAtWork]

    def to_json(self) -> dict[str, Any]:
        """The same for programs: the job's counters, and the rest beside them."""
        return asdict(self.job) | {
            "rows_per_second": round(self.rows_per_second, 3),
            "prompt_tokens_per_second": round(self.prompt_tokens_per_second, 1),
            "completion_tokens_per_second": round(self.completion_tokens_per_second, 1),
            "acceptance": _share(self.acceptance),
            "overlap": _share(self.overlap),
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left, 1),
            "stalled": self.stalled,
            "workers": [_worker(worker) for worker in self.workers],
        }


def _share(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _worker(worker: WorkerAtWork) -> dict[str, Any]:
    card, effort = worker.card, worker.effort
    return {
        "worker_id": card.worker_id,
        "mode": card.mode,
        "state": card.state,
        "rows_in_flight": None if card.stats is None else card.stats.in_flight,
        "completion_tokens_per_second": round(effort.tokens_per_second, 1),
        "acceptance": _share(effort.acceptance),
        "overlap": _share(effort.overlap),
    }


class Course:
    """Follows one job from look to look."""

    def __init__(self) -> None:
        self._rows, self._prompt, self._completion = self._paces = Pace(), Pace(), Pace()
        self._begun = False

    def see(self, now: float, job: JobStatus, workers: Sequence[WorkerAtWork]) -> Moment:
        """The job's counters and its workers at the time `now` (seconds, by a clock that never falls)."""
        self._rows.see(now, job.done)
        self._prompt.see(now, job.prompt_tokens)
        self._completion.see(now, job.completion_tokens)
        goes_on = job.state is JobState.RUNNING
        if goes_on and not self._begun:
            self._begun = True
            if job.done <= job.invalid:  # no row has ended yet: the first ones are being answered since now
                for pace in self._paces:
                    pace.begin(now)
        all_of_them = together([worker.effort for worker in workers])
        return Moment(
            job=job,
            rows_per_second=self._rows.at(now),
            prompt_tokens_per_second=self._prompt.at(now),
            completion_tokens_per_second=self._completion.at(now),
            acceptance=all_of_them.acceptance,
            overlap=all_of_them.overlap,
            seconds_left=eta.seconds_left(self._rows, now, done=job.done, rows=job.rows) if goes_on else None,
            stalled=goes_on and self._rows.stalled(now),
            workers=workers,
        )


def ended(job: JobStatus, notes: Sequence[EngineNote]) -> Moment:
    """A job that has ended, over its whole life."""
    seconds = max(job.ended - job.started, 1e-3) if job.started and job.ended else 0.0

    def rate(count: int) -> float:
        return count / seconds if seconds else 0.0

    effort = together([Effort.noted(note) for note in notes])
    return Moment(
        job=job,
        rows_per_second=rate(job.done - job.invalid),
        prompt_tokens_per_second=rate(job.prompt_tokens),
        completion_tokens_per_second=rate(job.completion_tokens),
        acceptance=effort.acceptance,
        overlap=effort.overlap,
        seconds_left=None,
        stalled=False,
        workers=(),
    )
