"""Whose work it was."""

from collections.abc import Mapping

import pytest

from producer.record.fleet import WorkerStats
from producer.record.models import Outcome
from producer.record.provenance import WORK, JobShare
from worker.queue import ledger as module
from worker.queue.ledger import Ledger


def stats(work: float, in_flight: int = 0) -> WorkerStats:
    """The engine has done so much in all, the same of everything."""
    return WorkerStats(1.0, 0, 0, in_flight, 0, 0, **dict.fromkeys(WORK, work))  # type: ignore[arg-type]


def ended(ledger: Ledger, job: str, tokens: int, *, failed: bool = False) -> None:
    ledger.ended(job, Outcome(0, "{}", failed, 0 if failed else 3, tokens))


def drafted(shares: Mapping[str, JobShare]) -> dict[str, int]:
    return {job: share.drafted for job, share in shares.items()}


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_rows_are_counted_where_they_belong(ledger: Ledger) -> None:
    ended(ledger, "a", 10)
    ended(ledger, "a", 0, failed=True)
    ended(ledger, "b", 5)
    ledger.settle(stats(0))
    shares = ledger.changed()
    assert shares["a"] == JobShare(rows=2, failed=1, prompt_tokens=3, completion_tokens=10)
    assert shares["b"] == JobShare(rows=1, prompt_tokens=3, completion_tokens=5)


def test_one_job_has_all_the_work_exactly(ledger: Ledger) -> None:
    ended(ledger, "a", 10)
    ledger.settle(stats(40, in_flight=3))
    ended(ledger, "a", 10)
    ledger.settle(stats(90))
    share = ledger.changed()["a"]
    assert (share.drafted, share.accepted) == (90, 90)
    assert (share.verify_seconds, share.draft_seconds, share.hidden_seconds) == (90, 90, 90)
    assert not share.estimated


def test_two_jobs_share_it_by_their_tokens(ledger: Ledger) -> None:
    ended(ledger, "a", 30)
    ended(ledger, "b", 10)
    ledger.settle(stats(100, in_flight=1))
    shares = ledger.changed()
    assert drafted(shares) == {"a": 75, "b": 25}
    assert all(share.estimated for share in shares.values())


def test_a_job_whose_rows_end_later_was_beside_it_all_the_same(ledger: Ledger) -> None:
    ended(ledger, "a", 30)
    ledger.settle(stats(100, in_flight=1))
    assert not ledger.changed()["a"].estimated  # nobody can know yet
    ended(ledger, "b", 10)
    ledger.settle(stats(120))
    shares = ledger.changed()
    assert drafted(shares) == {"a": 100, "b": 20}
    assert all(share.estimated for share in shares.values())


def test_an_engine_that_was_empty_in_between_mixes_nothing(ledger: Ledger) -> None:
    ended(ledger, "a", 30)
    ledger.settle(stats(100))
    ended(ledger, "b", 10)
    ledger.settle(stats(120))
    assert not any(share.estimated for share in ledger.changed().values())


def test_work_waits_for_the_rows_that_it_was_for(ledger: Ledger) -> None:
    ledger.settle(stats(50, in_flight=4))
    assert ledger.changed() == {}
    ended(ledger, "a", 1)
    ledger.settle(stats(60, in_flight=3))
    assert drafted(ledger.changed()) == {"a": 60}


def test_what_is_measured_late_belongs_to_the_last(ledger: Ledger) -> None:
    ended(ledger, "a", 1)
    ledger.settle(stats(10))
    ledger.changed()
    ledger.settle(stats(15))
    assert drafted(ledger.changed()) == {"a": 15}
    ledger.settle(stats(15))
    assert ledger.changed() == {}


def test_rows_without_tokens_share_it_evenly(ledger: Ledger) -> None:
    ended(ledger, "a", 0, failed=True)
    ended(ledger, "b", 0, failed=True)
    ledger.settle(stats(10))
    assert drafted(ledger.changed()) == {"a": 5, "b": 5}


def test_what_reached_nobody_is_given_again(ledger: Ledger) -> None:
    ended(ledger, "a", 1)
    ledger.settle(stats(10))
    ledger.unsaid(ledger.changed())
    assert drafted(ledger.changed()) == {"a": 10}


def test_old_jobs_are_forgotten(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_JOBS", 2)
    for job in "abca":
        ended(ledger, job, 1)
    ledger.settle(stats(0))
    assert ledger.changed().keys() == {"a", "c"}
