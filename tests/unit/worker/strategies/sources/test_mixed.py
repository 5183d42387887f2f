"""The source of which most drafts are expected to be accepted, by what was."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.strategies.sources import mixed as mixed_module
from worker.strategies.sources.mixed import MODEL, Mixed

SURE = [1.0] * 4
CHANCES = st.lists(st.floats(0, 1), max_size=8)


def shown(mixed: Mixed, request: str, job: str, source: str, accepted: int, times: int = 20) -> None:
    for _ in range(times):
        mixed.verified(request, job, source, SURE, accepted)


@given(CHANCES)
def test_at_first_a_source_is_taken_at_its_word(chances: list[float]) -> None:
    reached, total = 1.0, 0.0
    for chance in chances:
        reached *= chance
        total += reached
    assert Mixed().accepted("row", "job", "ngram", chances) == pytest.approx(total)


@given(CHANCES, st.lists(st.tuples(CHANCES, st.integers(0, 8)), max_size=30))
def test_what_is_expected_is_no_more_than_there_is(chances: list[float], past: list[tuple[list[float], int]]) -> None:
    mixed = Mixed()
    for told, accepted in past:
        mixed.verified("row", "job", "ngram", told, min(accepted, len(told)))
    assert 0 <= mixed.accepted("row", "job", "ngram", chances) <= len(chances)
    longer = mixed.accepted("row", "job", "ngram", [*chances, 0.5])
    assert longer >= mixed.accepted("row", "job", "ngram", chances)


@pytest.mark.parametrize("acceptance", [0.2, 0.6, 0.9])
def test_the_draft_model_s_share_is_its_acceptance(acceptance: float) -> None:
    mixed, dice = Mixed(), random.Random(1)
    for turn in range(2000):
        accepted = 0
        while accepted < 4 and dice.random() < acceptance:
            accepted += 1
        mixed.verified(f"{turn % 7}", "job", MODEL, SURE, accepted)
    expected = sum(acceptance**place for place in range(1, 5))
    assert mixed.accepted("new", "job", MODEL, SURE) == pytest.approx(expected, rel=0.15)


def test_a_row_s_past_weighs_more_than_its_job_s_and_a_new_row_is_as_its_job() -> None:
    mixed = Mixed()
    shown(mixed, "bad", "job", "ngram", 0)
    shown(mixed, "good", "job", "ngram", 4)
    of = {row: mixed.accepted(row, "job", "ngram", SURE) for row in ("bad", "new", "good")}
    assert of["bad"] < 0.5 < of["new"] < 3.5 < of["good"]
    assert mixed.accepted("new", "another", "ngram", SURE) == 4
    shown(mixed, "bad", "bad job", "ngram", 0)
    mixed.verified("once", "bad job", "ngram", [1.0], 1)
    assert mixed.accepted("once", "bad job", "ngram", SURE) < 1, "once right is not known to be right"
    assert mixed.accepted("new", "job", "suffix", SURE) == 4, "sources are apart"


def test_a_row_may_change() -> None:
    mixed = Mixed()
    shown(mixed, "row", "job", "ngram", 0, times=100)
    shown(mixed, "row", "job", "ngram", 4, times=30)
    assert mixed.accepted("row", "job", "ngram", SURE) > 3


def test_a_row_that_ended_is_forgotten_and_what_it_showed_of_its_job_is_not() -> None:
    mixed = Mixed()
    shown(mixed, "row", "job", "ngram", 0)
    mixed.ended("row")
    assert mixed.accepted("row", "job", "ngram", SURE) == mixed.accepted("new", "job", "ngram", SURE) < 1


def test_of_many_jobs_those_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_module, "_JOBS", 2)
    mixed = Mixed()
    for job in ("a", "b", "a", "c"):
        shown(mixed, job, job, "ngram", 0)
    assert [mixed.accepted("new", job, "ngram", SURE) < 4 for job in "abc"] == [True, False, True]


def test_a_source_that_stands_back_is_tried_less_and_less() -> None:
    mixed = Mixed()
    tried = [turn for turn in range(1, 317) if mixed.is_tried("job", "ngram")]
    assert [later - earlier for earlier, later in pairwise([0, *tried])] == [4, 8, 16, 32, 64, 64, 64, 64]
    assert not mixed.is_tried("another", "ngram"), "jobs are apart, and sources"
    assert not mixed.is_tried("job", "suffix")
