"""Whose work was it? What an engine did for all its rows at once is shared among the jobs that they were of."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from producer.record.fleet import WorkerStats
from producer.record.models import Outcome
from producer.record.provenance import WORK, JobShare

#: Jobs that are remembered: what is retried of an older one is counted from nothing again.
_JOBS = 10_000


@dataclass(slots=True)
class _Account:
    """A job's part so far."""

    rows: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    work: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WORK, 0.0))
    estimated: bool = False

    def share(self) -> JobShare:
        work = self.work
        return JobShare(
            rows=self.rows,
            failed=self.failed,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            drafted=round(work["drafted"]),
            accepted=round(work["accepted"]),
            verify_seconds=work["verify_seconds"],
            draft_seconds=work["draft_seconds"],
            hidden_seconds=work["hidden_seconds"],
            estimated=self.estimated,
        )


class Ledger:
    """Rows are counted where they belong; an engine's work goes to the jobs whose rows ended while it was done.

    It is divided by completion tokens. Work is done before the rows that it is for have ended, and is measured later:
    it waits for the next rows that end, and once no row is left it belongs to those that ended last.
    """

    def __init__(self) -> None:
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._unshared = dict.fromkeys(WORK, 0.0)
        self._counted = dict.fromkeys(WORK, 0.0)
        self._ended: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._together: set[str] = set()  # whose rows ended since the engine was empty: it may have had rows of all
        self._changed: set[str] = set()

    def ended(self, job_id: str, outcome: Outcome) -> None:
        """A row of the job has ended, and its result is in Redis."""
        account = self._accounts.setdefault(job_id, _Account())
        self._accounts.move_to_end(job_id)
        account.rows += 1
        account.failed += outcome.failed
        account.prompt_tokens += outcome.prompt_tokens
        account.completion_tokens += outcome.completion_tokens
        self._ended[job_id] = self._ended.get(job_id, 0) + outcome.completion_tokens
        self._changed.add(job_id)

    def settle(self, stats: WorkerStats) -> None:
        """Share what the worker has done since the last time; `stats` counts from its start."""
        for name in WORK:
            total = float(getattr(stats, name))
            self._unshared[name] += total - self._counted[name]
            self._counted[name] = total
        if self._ended:
            self._together |= self._ended.keys()
            self._divide(self._ended)
            self._last, self._ended = self._ended, {}
        elif not stats.in_flight and self._last and any(self._unshared.values()):
            self._divide(self._last)
        if not stats.in_flight:
            self._together.clear()
        while len(self._accounts) > _JOBS:
            self._accounts.popitem(last=False)

    def changed(self) -> Mapping[str, JobShare]:
        """What the jobs have whose part has changed since this was asked last."""
        shares = {job_id: self._accounts[job_id].share() for job_id in self._changed if job_id in self._accounts}
        self._changed.clear()
        return shares

    def unsaid(self, jobs: Mapping[str, JobShare]) -> None:
        """What `changed` gave of these jobs reached nobody: give it again."""
        self._changed.update(jobs)

    def _divide(self, tokens: Mapping[str, int]) -> None:
        total = sum(tokens.values())
        for job_id, own in tokens.items():
            part = own / total if total else 1 / len(tokens)
            account = self._accounts.get(job_id)
            if account is None:
                continue
            for name in WORK:
                account.work[name] += self._unshared[name] * part
            self._changed.add(job_id)
        if any(self._unshared.values()) and len(self._together) > 1:
            for job_id in self._together & self._accounts.keys():
                self._accounts[job_id].estimated = True
                self._changed.add(job_id)
        self._unshared = dict.fromkeys(WORK, 0.0)
