import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.intake.unique import Place, SeenIds


def add(seen: SeenIds, *named: tuple[str, int]) -> dict[int, int]:
    return {at: place.line for at, place in seen.add([(name, Place(line)) for name, line in named]).items()}


def test_a_duplicate_names_the_earlier_line():
    with SeenIds() as seen:
        assert add(seen, ("a", 1), ("row-2", 2), ("A", 3)) == {}
        assert add(seen, ("a", 4)) == {0: 1}
        assert add(seen, ("b", 5), ("a", 6), ("b", 7), ("row-2", 9)) == {1: 1, 2: 5, 3: 2}


def test_a_place_says_which_file_it_is_in():
    with SeenIds() as seen:
        assert seen.add([("a", Place(2**31, "x.jsonl")), ("b", Place(1, "x.jsonl")), ("c", Place(1, "y.jsonl"))]) == {}
        found = seen.add([("c", Place(2, "y.jsonl")), ("a", Place(3, "z.jsonl"))])
    assert [str(place) for place in found.values()] == ["line 1 of y.jsonl", f"line {2**31} of x.jsonl"]


@pytest.mark.parametrize(("one", "other"), [("1", "01"), ("a", "a "), ("1", "1.0"), ("é", "e\u0301"), ("a", "a\0")])
def test_ids_are_compared_exactly(one, other):
    with SeenIds() as seen:
        assert add(seen, (one, 1), (other, 2)) == {}


def test_ids_beyond_the_cache_are_found_in_the_temporary_file(monkeypatch):
    monkeypatch.setattr("producer.scratch._CACHE_KIB", 64)
    with SeenIds() as seen:
        ids = [f"{number:0200}" for number in range(2000)]
        assert add(seen, *((custom_id, line) for line, custom_id in enumerate(ids))) == {}
        assert add(seen, *((custom_id, 2000) for custom_id in ids)) == {line: line for line in range(2000)}


def fill(seen: SeenIds) -> None:
    for number in range(1000):
        add(seen, (f"{number:0500}", number))


def test_a_full_disk_is_an_os_error():
    with SeenIds() as seen:
        seen.database.execute("PRAGMA max_page_count = 2")
        with pytest.raises(OSError, match="temporary directory: database or disk is full"):
            fill(seen)


def test_closing_twice_is_fine_and_using_it_afterwards_is_not():
    seen = SeenIds()
    seen.close()
    seen.close()
    with pytest.raises(sqlite3.ProgrammingError):
        add(seen, ("a", 1))


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8"), max_size=2))))
def test_it_answers_as_a_dict_would(portions):
    first: dict[str, int] = {}
    line = 0
    with SeenIds() as seen:
        for ids in portions:
            named = list(enumerate(ids, line))
            expected = {}
            for at, (number, custom_id) in enumerate(named):
                if first.setdefault(custom_id, number) != number:
                    expected[at] = first[custom_id]
            assert add(seen, *((custom_id, number) for number, custom_id in named)) == expected
            line += len(ids)
