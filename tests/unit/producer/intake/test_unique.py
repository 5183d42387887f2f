import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.intake.unique import SeenIds


def test_a_duplicate_names_the_earlier_line():
    with SeenIds() as seen:
        assert seen.add("a", 1) is None
        assert seen.add("row-2", 2) is None
        assert seen.add("A", 3) is None
        assert seen.add("a", 4) == 1
        assert seen.add("a", 5) == 1
        assert seen.add("row-2", 9) == 2


@pytest.mark.parametrize(("one", "other"), [("1", "01"), ("a", "a "), ("1", "1.0"), ("é", "e\u0301"), ("a", "a\0")])
def test_ids_are_compared_exactly(one, other):
    with SeenIds() as seen:
        assert seen.add(one, 1) is None
        assert seen.add(other, 2) is None


def test_ids_beyond_the_cache_are_found_in_the_temporary_file(monkeypatch):
    monkeypatch.setattr("producer.intake.unique._CACHE_KIB", 64)
    with SeenIds() as seen:
        ids = [f"{number:0200}" for number in range(2000)]
        assert all(seen.add(custom_id, line) is None for line, custom_id in enumerate(ids))
        assert [seen.add(custom_id, -1) for custom_id in ids] == list(range(2000))


def fill(seen: SeenIds) -> None:
    for number in range(1000):
        seen.add(f"{number:0500}", number)


def test_a_full_disk_is_an_os_error(monkeypatch):
    with SeenIds() as seen:
        seen._database.execute("PRAGMA max_page_count = 2")
        with pytest.raises(OSError, match="temporary directory: database or disk is full"):
            fill(seen)


def test_closing_twice_is_fine_and_using_it_afterwards_is_not():
    seen = SeenIds()
    seen.close()
    seen.close()
    with pytest.raises(sqlite3.ProgrammingError):
        seen.add("a", 1)


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=2)))
def test_it_answers_as_a_dict_would(ids):
    first: dict[str, int] = {}
    with SeenIds() as seen:
        for line, custom_id in enumerate(ids):
            assert seen.add(custom_id, line) == first.get(custom_id)
            first.setdefault(custom_id, line)
