"""Which tokens a rank verifies as drafts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from steps import Step, step

from worker.minedraft.draft_table import DraftTable
from worker.minedraft.relay import NO_DRAFT

NONE = NO_DRAFT


def filled(drafts: DraftTable, call: Step, number: int) -> dict[str, list[int]]:
    drafts.fill(call, number)
    return call.scheduled_spec_decode_tokens


def read(*names: str) -> DraftTable:
    """A table in which these requests have read their prompts, in call 1."""
    drafts = DraftTable()
    drafts.fill(step(reading=dict.fromkeys(names, 9)), 1)
    return drafts


def test_a_placeholder_without_a_draft_is_taken_back() -> None:
    drafts, call = DraftTable(), step({"new": 2, "b": 0})
    assert filled(drafts, call, 1) == {}
    assert call.num_scheduled_tokens == {"new": 1, "b": 1}
    assert call.total_num_scheduled_tokens == 2
    assert drafts.verified == {"new": 0}


def test_under_a_grammar_zeros_stand_for_missing_drafts() -> None:
    drafts = read("a", "b")
    drafts.store(1, ["a"], [[5, NONE, NONE]])
    call = step({"a": 3, "b": 2}, grammar=True)
    assert filled(drafts, call, 3) == {"a": [5, 0, 0], "b": [0, 0]}
    assert call.num_scheduled_tokens == {"a": 4, "b": 3}
    assert (drafts.drafted, drafts.missing, drafts.verified) == ({"a": 1}, {"a": 2, "b": 2}, {"a": 1, "b": 0})
    drafts.store(3, ["a", "b"], [[5, 6, 7], [8, 9, 9]])
    assert filled(drafts, step({"a": 3, "b": 2}, grammar=True), 5) == {"a": [5, 6, 7], "b": [8, 9]}
    assert drafts.verified is None


def test_no_more_drafts_than_placeholders() -> None:
    drafts = read("a", "b", "c")
    drafts.store(1, ["a", "b", "c"], [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert filled(drafts, step({"b": 1, "c": 0, "a": 3}), 3) == {"a": [1, 2, 3], "b": [4]}
    assert drafts.verified is None


def test_drafts_end_at_the_first_that_is_none() -> None:
    drafts = read("a", "b")
    drafts.store(1, ["a", "b"], [[1, NONE, 3], [NONE, 5, 6]])
    call = step({"a": 3, "b": 3})
    assert filled(drafts, call, 3) == {"a": [1]}
    assert call.num_scheduled_tokens == {"a": 2, "b": 1}
    assert drafts.verified == {"a": 1, "b": 0}


def test_what_the_engine_found_itself_stays() -> None:
    drafts = read("a", "b")
    drafts.store(1, ["a", "b"], [[1, 2, 3], [4, 5, 6]], {"a": torch.ones(3, 2), "b": torch.ones(3, 2)})
    call = step({"a": 3, "b": 3})
    call.scheduled_spec_decode_tokens["a"] = [0, 8, NONE]
    assert filled(drafts, call, 3) == {"a": [0, 8], "b": [4, 5, 6]}
    assert call.num_scheduled_tokens == {"a": 3, "b": 4}
    assert drafts.drafted == {"b": 3}
    assert drafts.verified == {"a": 2, "b": 3}
    assert drafts.proposals.keys() == {"b"}, "nothing was drawn for what was found"


def test_drafts_are_of_use_in_the_next_call_of_their_request_alone() -> None:
    drafts = read("a", "b")
    drafts.store(1, ["a", "b"], [[1], [2]])
    drafts.store(1, ["a"], [[3]])
    assert filled(drafts, step({"a": 1}), 3) == {"a": [3]}, "the newest count"
    assert filled(drafts, step({"a": 1}), 5) == {}, "they follow the text at one place"
    assert filled(drafts, step({"b": 1}), 6) == {"b": [2]}, "it has waited"


def test_drafts_that_come_after_the_next_call_has_begun_count_nowhere() -> None:
    """Or ranks, which get them at different times, would verify different ones."""
    drafts = read("a")
    drafts.fill(step(reading={"a": 9}), 2)
    drafts.store(1, ["a"], [[1]])
    assert filled(drafts, step({"a": 1}), 4) == {}


def test_whoever_has_ended_is_forgotten_even_when_its_message_comes_later() -> None:
    drafts = DraftTable()
    drafts.fill(step({"a": 1, "b": 1}), 1)
    drafts.fill(step({"b": 1}, finished="a"), 2)
    assert len(drafts) == 1
    drafts.store(1, ["a", "b"], [[1], [2]])
    assert len(drafts) == 1
    drafts.fill(step(finished="b unheard-of"), 3)
    assert len(drafts) == 0


def test_a_name_used_again_begins_without_drafts() -> None:
    drafts = read("a")
    drafts.store(1, ["a"], [[1]])
    assert filled(drafts, step({"a": 1}, finished="a"), 3) == {}


def test_a_message_has_a_row_for_each_request() -> None:
    with pytest.raises(ValueError, match="shorter"):
        read("a", "b").store(1, ["a", "b"], [[1]])


def test_drafts_are_forgotten_and_requests_are_not() -> None:
    drafts = read("a", "b")
    drafts.store(1, ["a"], [[1, 2]])
    drafts.forget_drafts()
    assert drafts.requests == {"a", "b"}
    assert filled(drafts, step({"a": 2}), 3) == {}
    drafts.store(3, ["a"], [[5, 6]])
    assert filled(drafts, step({"a": 2}), 5) == {"a": [5, 6]}


def test_proposals_go_with_their_drafts_and_are_as_many() -> None:
    drafts = read("a", "b", "c", "d")
    one = torch.arange(8.0).reshape(2, 4)
    rows = [[1, 2], [3, 4], [5, NONE], [NONE, NONE]]
    drafts.store(1, ["a", "b", "c", "d"], rows, {"a": one, "c": one, "d": one})
    drafts.fill(step({"a": 2, "b": 2, "c": 2, "d": 2}, grammar=True), 3)
    assert {name: rows.tolist() for name, rows in drafts.proposals.items()} == {
        "a": one.tolist(),
        "c": one[:1].tolist(),
    }
    drafts.fill(step({"a": 2}), 5)
    assert drafts.proposals == {}
    drafts.store(5, ["a"], [[1, 2]], {"a": one})
    drafts.store(5, ["a"], [[1, 2]])
    drafts.fill(step({"a": 2}), 7)
    assert drafts.proposals == {}, "newer drafts were not drawn"


@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.tuples(st.integers(0, 4), st.lists(st.integers(-1, 3), min_size=4, max_size=4)),
        min_size=1,
    ),
    st.booleans(),
)
def test_a_step_stays_consistent_and_tells_what_was_taken(
    rows: dict[str, tuple[int, list[int]]], grammar: bool
) -> None:
    drafts = read(*rows)
    drafts.store(1, list(rows), [message for _, message in rows.values()])
    call = step({name: places for name, (places, _) in rows.items()}, grammar=grammar)
    scheduled = call.total_num_scheduled_tokens
    drafts.fill(call, 3)
    placed = call.scheduled_spec_decode_tokens
    assert all(tokens == 1 + len(placed.get(name, ())) for name, tokens in call.num_scheduled_tokens.items())
    assert all(placed.values())
    assert all(token >= 0 for row in placed.values() for token in row)
    assert all(row == rows[name][1][: len(row)] for name, row in placed.items() if not grammar)
    taken = scheduled - call.total_num_scheduled_tokens
    zeros = sum(drafts.missing.values())
    assert not (taken and zeros)
    assert bool(zeros) <= grammar
    assert (drafts.verified is None) is (not taken + zeros)
    if drafts.verified is not None:
        assert sum(places for places, _ in rows.values()) - sum(drafts.verified.values()) == taken + zeros
