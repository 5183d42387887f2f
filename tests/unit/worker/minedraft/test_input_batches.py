"""Which of the two persistent batches a call gets, and which of its rows are made anew."""

from types import SimpleNamespace

import pytest
from steps import step

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


def removed(batches: InputBatches, call: object) -> tuple[int, list[str]]:
    """Which batch the call got, and the rows that were removed from it."""
    batch = batches.next(call)  # type: ignore[arg-type]
    names, batch.removed = batch.removed, []
    return id(batch), names


def test_calls_take_turns_and_rows_stay(batches: InputBatches) -> None:
    first, _ = removed(batches, step({"a": 1, "b": 1}))
    second, _ = removed(batches, step({"c": 1}))
    assert first != second
    assert removed(batches, step({"a": 1, "b": 1})) == (first, [])
    assert removed(batches, step({"c": 1})) == (second, [])


def test_an_empty_call_has_its_turn(batches: InputBatches) -> None:
    first, _ = removed(batches, step({"a": 1}))
    removed(batches, step())
    assert removed(batches, step({"a": 1})) == (first, [])


def test_a_request_that_changes_batches_gets_a_new_row_and_another_when_it_comes_back(batches: InputBatches) -> None:
    removed(batches, step({"a": 1, "b": 1}))
    assert removed(batches, step({"a": 1}))[1] == ["a"]
    assert removed(batches, step({"b": 1}))[1] == []
    assert removed(batches, step({"a": 1}))[1] == []
    assert removed(batches, step({"a": 1, "b": 1}))[1] == ["a"]


def test_a_prompt_that_is_read_in_both_gets_a_new_row_each_time(batches: InputBatches) -> None:
    for _ in range(4):
        assert removed(batches, step(reading={"a": 9}))[1] == ["a"]


def test_a_name_that_is_used_again_is_new(batches: InputBatches) -> None:
    removed(batches, step({"a": 1}))
    removed(batches, step(finished="a"))
    assert removed(batches, step({"a": 1}))[1] == ["a"]
