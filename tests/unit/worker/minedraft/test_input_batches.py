"""Which of the two persistent batches a call gets, and which of its rows are made anew."""

from types import SimpleNamespace

import pytest
from steps import Step, step

from worker.minedraft import input_batches
from worker.minedraft.input_batches import InputBatches


class Batch:
    """A persistent batch that remembers what it was told to forget."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove_request(self, request: str) -> None:
        self.removed.append(request)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> InputBatches:
    monkeypatch.setattr(input_batches, "_another", lambda _: Batch())
    return InputBatches(SimpleNamespace(input_batch=Batch()))


def removed(batches: InputBatches, number: int, call: Step) -> tuple[int, list[str]]:
    """Which batch the call got, and the rows that were removed from it."""
    batch = batches.of_call(number, call)
    names, batch.removed = batch.removed, []
    return id(batch), names


def test_calls_take_turns_and_rows_stay(batches: InputBatches) -> None:
    first, _ = removed(batches, 1, step({"a": 1, "b": 1}))
    second, _ = removed(batches, 2, step({"c": 1}))
    assert first != second
    assert removed(batches, 3, step({"a": 1, "b": 1})) == (first, [])
    assert removed(batches, 4, step({"c": 1})) == (second, [])


def test_one_batch_alone_stays_where_it_is(batches: InputBatches) -> None:
    """Its calls have every second number."""
    first, _ = removed(batches, 1, step({"a": 1, "b": 1}))
    assert [removed(batches, number, step({"a": 1, "b": 1})) for number in (3, 5, 7)] == [(first, [])] * 3


def test_when_two_batches_become_one_the_rows_of_the_other_are_made_anew(batches: InputBatches) -> None:
    removed(batches, 1, step({"a": 1}))
    second, _ = removed(batches, 2, step({"b": 1}))
    assert removed(batches, 4, step({"a": 1, "b": 1})) == (second, ["a"])
    assert removed(batches, 6, step({"a": 1, "b": 1})) == (second, [])


def test_a_request_that_changes_batches_gets_a_new_row_and_another_when_it_comes_back(batches: InputBatches) -> None:
    removed(batches, 1, step({"a": 1, "b": 1}))
    assert removed(batches, 2, step({"a": 1}))[1] == ["a"]
    assert removed(batches, 3, step({"b": 1}))[1] == []
    assert removed(batches, 4, step({"a": 1}))[1] == []
    assert removed(batches, 5, step({"a": 1, "b": 1}))[1] == ["a"]


def test_a_prompt_that_is_read_in_both_gets_a_new_row_each_time(batches: InputBatches) -> None:
    for number in range(1, 5):
        assert removed(batches, number, step(reading={"a": 9}))[1] == ["a"]


def test_a_name_that_is_used_again_is_new(batches: InputBatches) -> None:
    removed(batches, 1, step({"a": 1}))
    removed(batches, 2, step(finished="a"))
    assert removed(batches, 3, step({"a": 1}))[1] == ["a"]
