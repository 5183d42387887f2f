"""Drafts from rows of the same job that are done."""

from collections.abc import Sequence

import pytest

from worker.strategies.seam import Guess
from worker.strategies.sources import suffix
from worker.strategies.sources.suffix import Suffix

TEMPLATE = list(range(100, 140))


def end(source: Suffix, text: Sequence[int], *, job: str = "job", prompt: int = 0, whole: bool = True) -> None:
    source.ended("done", job, text, prompt, whole=whole)


def find(source: Suffix, row: Sequence[int], most: int = 3, job: str = "job", request: str = "row") -> Guess:
    return source.find(request, job, row, 0, most)


def settled(source: Suffix, job: str = "job", request: str = "other") -> None:
    """Ask until all that waits is taken in."""
    for _ in range(200):
        find(source, [], job=job, request=request)


def test_what_followed_in_a_row_of_the_job_follows() -> None:
    source = Suffix()
    assert find(source, TEMPLATE[:8]) == Guess([], [])
    end(source, TEMPLATE)
    settled(source)
    found = find(source, TEMPLATE[:8])
    assert found.ids == TEMPLATE[8:11]
    assert found.chances == [8 / 10, 9 / 11, 10 / 12], "all followed, and the more is shared the surer"
    assert find(source, [7, 8, 9], request="unlike").ids == [], "nothing shared, nothing guessed"
    assert find(source, TEMPLATE[:8], job="another").ids == [], "other jobs' rows are not looked at"


def test_what_followed_more_often_comes_first_and_says_so() -> None:
    source = Suffix()
    for last in (3, 4, 4, 4):
        end(source, [1, 2, last])
    settled(source)
    found = find(source, [1, 2], most=1)
    assert found.ids == [4]
    assert found.chances == [2 / 4 * 3 / 4]


def test_where_all_texts_end_fewer_words_tell_more() -> None:
    source = Suffix()
    end(source, [1, 2, 3])
    end(source, [9, 3, 5])
    settled(source)
    assert find(source, [1, 2, 3], most=1) == Guess([5], [1 / 3 * 1 / 2])


def test_the_prompt_s_last_words_are_kept_with_the_answer() -> None:
    source = Suffix()
    end(source, [*range(30), 50, 51], prompt=30)
    settled(source)
    assert find(source, [28, 29]).ids == [50, 51]
    assert find(source, [3, 4], request="within").ids == [], "the rest of a prompt is not"


def test_rows_that_were_aborted_are_not_kept() -> None:
    source = Suffix()
    end(source, TEMPLATE, whole=False)
    settled(source)
    assert find(source, TEMPLATE[:8]).ids == []


def test_a_long_row_is_taken_in_little_by_little() -> None:
    source = Suffix()
    end(source, range(2000))
    found = [bool(find(source, [1990, 1991]).ids) for _ in range(200)]
    assert not any(found[:10])
    assert found[-1]


def test_all_rows_of_a_call_share_one_allowance() -> None:
    source = Suffix()
    end(source, range(2000))
    for turn in range(1, 4):
        for row in range(128):
            find(source, [], request=f"{row}")
        assert 50 * turn < source.tokens("job") < 150 * turn
    end(source, TEMPLATE)
    for _ in range(100):
        source.ended("0", "job", [], 0, whole=False)
        find(source, [], request="0")
    assert source.tokens("job") < 600, "a row that comes anew is not another call"


def test_a_row_that_repeats_itself_is_not_taken_in_to_its_end() -> None:
    source = Suffix()
    end(source, [*[1] * 5000, 2, 3])
    settled(source)
    assert find(source, [1, 1]).ids == [1, 1, 1]
    assert find(source, [2], request="late").ids == []
    end(source, TEMPLATE)
    settled(source)
    assert find(source, TEMPLATE[:8], request="next").ids == TEMPLATE[8:11], "others are"


def test_a_row_goes_on_where_it_stood_when_texts_come() -> None:
    source = Suffix()
    end(source, [1, 2, 3, 4])
    settled(source)
    assert find(source, [8, 1, 2]).ids == [3, 4]
    end(source, [8, 1, 2, 9])
    settled(source)
    assert find(source, [8, 1, 2], most=1).ids == [9], "a longer end is known now"


def test_the_jobs_used_last_are_kept() -> None:
    source = Suffix()
    for job in "abcd":
        end(source, TEMPLATE, job=job)
    for job in "bcda":
        settled(source, job=job)
        assert find(source, TEMPLATE[:8], job=job, request=f"row of {job}").ids
    end(source, TEMPLATE, job="e")
    settled(source, job="e")
    assert [bool(find(source, TEMPLATE[:8], job=job, request=f"row of {job}").ids) for job in "abcde"] == [
        True,
        False,
        True,
        True,
        True,
    ]
    end(source, [50, *TEMPLATE[:8], 1], job="b")
    settled(source, job="b")
    assert find(source, TEMPLATE[:8], job="b", request="row of b").ids == [1], "a job that comes back begins anew"


def test_what_is_kept_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix, "_TOKENS_A_JOB", 50)
    monkeypatch.setattr(suffix, "_WAITING", 60)
    source = Suffix()
    end(source, TEMPLATE)
    end(source, [*range(200, 215)])  # with those that wait the job would have more than 50
    end(source, [*range(30)], job="job2")
    end(source, [*range(60, 80)], job="job2")
    for job in ("job", "job2"):
        settled(source, job=job)
    assert find(source, TEMPLATE[:8]).ids
    assert find(source, [60, 61], job="job2", request="2").ids == [62, 63, 64], "40 and 20 may wait"
    assert find(source, [1, 2], job="job2", request="3").ids == [], "30 more may not"
    end(source, [*range(200, 215)])
    settled(source)
    assert find(source, [200, 201], request="4").ids == []
    end(source, [*range(300, 345)], job="job3")
    settled(source, job="job3")
    assert find(source, [300, 301], job="job3", request="5").ids == [302, 303, 304], "nothing waited any more"
