"""Drafts from a row's own text, against a search by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from worker.strategies.sources.ngram import NGram, copied, last_match

TEXT = st.lists(st.integers(0, 3), max_size=40)


def by_hand(text: list[int]) -> tuple[int, int] | None:
    for length in (4, 3, 2):
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == text[len(text) - length :]:
                return end, length
    return None


@given(TEXT)
def test_the_longest_end_where_it_was_last(text: list[int]) -> None:
    assert last_match(np.array(text, np.int32)) == by_hand(text)


@given(TEXT.filter(bool), st.data())
def test_a_copy_reads_on_into_itself(text: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    found = copied(np.array(text, np.int32), start, 50)
    whole = text + found
    assert [whole[start + place] for place in range(50)] == found


@given(st.lists(TEXT, min_size=1, max_size=5), st.integers(1, 6))
def test_a_row_that_grows_is_as_one_that_is_read_at_once(parts: list[list[int]], most: int) -> None:
    grown, row = NGram(), list[int]()
    for part in parts:
        row.extend(part)
        found = grown.find("row", "", row, 0, most)
        assert found == NGram().find("row", "", row, 0, most)
        assert len(found.ids) == len(found.chances) == (most if by_hand(row) else 0)


def test_what_followed_is_surer_after_more_words() -> None:
    found = NGram().find("row", "", [9, 5, 6, 7, 8, 1, 2, 6, 7, 8], 0, 3)
    assert found.ids == [1, 2, 6]
    assert found.chances == [3 / 5, 4 / 6, 5 / 7]


def test_a_long_row_is_looked_through_as_far_back_as_it_costs_little() -> None:
    near, far = [1, 2, *range(10, 8198), 1, 2], [1, 2, *range(10, 8199), 1, 2]
    assert NGram().find("row", "", near, 0, 1).ids == [10]
    assert NGram().find("row", "", far, 0, 1).ids == []


def test_a_row_that_ended_is_forgotten() -> None:
    source = NGram()
    source.find("row", "", [1, 2, 3, 1, 2], 0, 1)
    source.ended("row", "", [1, 2, 3, 1, 2], 0, whole=True)
    assert source.find("row", "", [4, 5, 4, 5], 0, 1).ids == [4]
