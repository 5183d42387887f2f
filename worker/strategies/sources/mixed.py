"""Which source a row's drafts are from: the one of which most tokens are expected to be accepted.

What a source says of its drafts is right in the mean of all rows (`trust.py`), not for each: in one row the answer
repeats the prompt, in the next it does not. So what was accepted of a row's drafts is set against what its source had
said of them, and what it says next is multiplied by that share. Rows that have shown little are taken to be as others
of their job, and jobs as sources are in the mean. The draft model is a source like others. It says nothing of its
drafts here, so it is taken to be sure: its share is its acceptance.

A source that always has to stand back is never shown to be better than it is taken to be. So it is tried all the same,
after 4 times in a row of a job, then 8, 16, and so on, up to every 64th time.

As TABED (arXiv 2601.20357) does for draft models, by past error; here of single rows, and without running all of them.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

MODEL = "model"
#: What is believed of the draft model at first; other sources have said how sure they are.
_MODEL_FIRST = 0.6
#: As many drafts of a row as what is known of its job counts, and of a job as what is believed at first.
_PRIOR_WEIGHT = 4.0
#: Tried drafts after which one counts half: texts have easy and hard parts.
_ROW_HALF_LIFE, _JOB_HALF_LIFE = 32.0, 2000.0
_JOBS = 64
_FIRST_TRY, _LAST_TRY = 4, 64


class _Past:
    """Of drafts that were tried: how many were expected to be accepted, and how many were."""

    __slots__ = ("accepted", "expected")

    def __init__(self) -> None:
        self.expected = self.accepted = 0.0

    def add(self, expected: float, accepted: int, tried: int, half_life: float) -> None:
        kept = 0.5 ** (tried / half_life)
        self.expected = self.expected * kept + expected
        self.accepted = self.accepted * kept + accepted

    def share(self, prior: float) -> float:
        return (self.accepted + _PRIOR_WEIGHT * prior) / (self.expected + _PRIOR_WEIGHT)


@dataclass(slots=True)
class _Job:
    """What the rows of a job have shown, of each source; how often each stood back, and after how often it is tried."""

    pasts: dict[str, _Past] = field(default_factory=dict)
    stood_back: dict[str, tuple[int, int]] = field(default_factory=dict)


class Mixed:
    """Weighs sources for each row."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, _Past]] = {}
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def accepted(self, request: str, job: str, source: str, chances: Iterable[float]) -> float:
        """How many drafts of a source are expected to be accepted.

        Args:
            request: the row.
            job: its job.
            source: its name.
            chances: what it says of each draft: how likely it is right where those before it are.
        """
        share = _MODEL_FIRST if source == MODEL else 1.0
        of_job = self._jobs.get(job)
        for pasts in (of_job.pasts if of_job else {}, self._rows.get(request, {})):
            if source in pasts:
                share = pasts[source].share(share)
        total, reached = 0.0, 1.0
        for chance in chances:
            reached *= min(1.0, share * chance)
            total += reached
        return total

    def is_tried(self, job: str, source: str) -> bool:
        """Whether a source whose drafts are less than another's has its turn all the same, in a row of this job."""
        stood_back = self._job(job).stood_back
        times, due = stood_back.get(source, (0, _FIRST_TRY))
        tried = times + 1 >= due
        stood_back[source] = (0, min(2 * due, _LAST_TRY)) if tried else (times + 1, due)
        return tried

    def verified(self, request: str, job: str, source: str, chances: Iterable[float], accepted: int) -> None:
        """What came of a row's drafts.

        Args:
            request: the row.
            job: its job.
            source: where they were from.
            chances: what it had said of those that were verified.
            accepted: how many of them, from the first on, were accepted.
        """
        tried = list(chances)[: accepted + 1]
        if not tried:
            return
        of_job = self._job(job).pasts.setdefault(source, _Past())
        of_row = self._rows.setdefault(request, {}).setdefault(source, _Past())
        for past, half_life in ((of_job, _JOB_HALF_LIFE), (of_row, _ROW_HALF_LIFE)):
            past.add(sum(tried), accepted, len(tried), half_life)

    def ended(self, request: str) -> None:
        """Forget the row; what its job has shown stays."""
        self._rows.pop(request, None)

    def _job(self, job: str) -> _Job:
        found = self._jobs.pop(job, None) or _Job()
        self._jobs[job] = found  # the last one now
        if len(self._jobs) > _JOBS:
            self._jobs.popitem(last=False)
        return found
