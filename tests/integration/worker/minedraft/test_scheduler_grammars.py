"""Rows with a grammar in the two-batch scheduler, without models: who waits for drafts, and which are allowed."""

from itertools import takewhile
from typing import Any

import pytest
from integration.worker.minedraft.imagined_engine import BLOCK, PLACEHOLDERS, AnyTokens, ImaginedEngine, two_batches

from worker.minedraft.presence import State
from worker.minedraft.shown_drafts import NotShownError


class Small(AnyTokens):
    """A grammar that accepts small tokens."""

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return list(takewhile(lambda token: token < 100, tokens))


def under_grammars(config: Any, names: str, structured: str) -> ImaginedEngine:
    """An engine that has read the prompts of requests, some of them with a grammar, the mask of which is never made."""
    engine = two_batches(config)
    for name in names:
        request = engine.add(name, structured=name in structured)
        if name in structured:
            assert request.structured_output_request is not None
            request.structured_output_request.grammar = Small()  # type: ignore[assignment]
    engine.scheduler.structured_output_manager.grammar_bitmask = lambda *_: None  # type: ignore[method-assign]
    for _ in range(min(len(names), 2)):
        engine.step()
    return engine


def test_vllm_waits_with_the_mask_only_where_the_grammar_has_to_see_drafts(config: Any) -> None:
    engine = under_grammars(config, "abcd", structured="a")
    assert [call.pending_structured_output_tokens for call in engine.calls] == [False, False], "prompts have none"
    for _ in range(3):
        with_grammar, without = engine.step(), engine.step()
        assert with_grammar.scheduled_spec_decode_tokens == {"a": PLACEHOLDERS, "b": PLACEHOLDERS}
        assert with_grammar.pending_structured_output_tokens
        assert set(without.num_scheduled_tokens) == {"c", "d"}
        assert not without.pending_structured_output_tokens


def test_with_no_call_before_it_the_mask_is_made_at_once(config: Any) -> None:
    engine = under_grammars(config, "a", structured="a")
    for _ in range(3):
        call = engine.step()
        assert call.scheduled_spec_decode_tokens == {"a": PLACEHOLDERS}
        assert not call.pending_structured_output_tokens


def test_without_a_drafter_vllm_waits_with_no_mask(config: Any) -> None:
    engine = under_grammars(config, "abcd", structured="abcd")
    engine.scheduler._presence.state = State.ABSENT
    engine.step()
    calls = [engine.step() for _ in range(3)]
    assert not any(call.scheduled_spec_decode_tokens or call.pending_structured_output_tokens for call in calls)


def test_a_grammar_sees_what_the_first_verifier_shows(config: Any) -> None:
    engine = under_grammars(config, "abcdef", structured="bc")
    call = engine.step()
    drafts = {"a": [500, 500, 500], "b": [7, 500, 7], "c": [7, 8, 9]}
    engine.scheduler._shown.show(engine.scheduler._numbers.last, drafts)
    masks = engine.scheduler.get_grammar_bitmask(call)
    assert call.scheduled_spec_decode_tokens == {"a": PLACEHOLDERS, "b": [7, -1, -1], "c": [7, 8, 9]}
    assert call.num_invalid_spec_tokens == {"b": 2}
    assert masks is not None
    assert masks.structured_output_request_ids == ["b", "c"]
    assert masks.num_acceptable_drafts == [1, 3]


class Thinking:
    """A reasoning parser: who has thought says 505."""

    def is_reasoning_end(self, tokens: list[int]) -> bool:
        return 505 in tokens

    def is_reasoning_end_streaming(self, _: list[int], new: list[int]) -> bool:
        return 505 in new


@pytest.mark.parametrize(
    ("drafted", "allowed"),
    [([500, 500, 500], [500, 500, 500]), ([500, 505, 500], [500, 505, -1]), ([500, 505, 7], [500, 505, 7])],
)
def test_a_grammar_begins_where_thinking_ends_in_the_middle_of_drafts_too(
    drafted: list[int], allowed: list[int], config: Any
) -> None:
    engine = under_grammars(config, "ab", structured="a")
    asked = engine.scheduler.requests["a"].structured_output_request
    assert asked is not None
    asked.reasoner, asked.reasoning_ended = Thinking(), False  # type: ignore[assignment]
    engine.scheduler.structured_output_manager.reasoner_cls = Thinking  # type: ignore[assignment]
    call = engine.step()
    engine.scheduler._shown.show(engine.scheduler._numbers.last, {"a": drafted})
    engine.scheduler.get_grammar_bitmask(call)
    assert call.scheduled_spec_decode_tokens["a"] == allowed


def test_nobody_waits_for_the_drafts_of_requests_that_are_gone(config: Any) -> None:
    engine = under_grammars(config, "ab", structured="a")
    call = engine.step()
    assert call.pending_structured_output_tokens
    engine.abort("a")
    assert engine.scheduler.get_grammar_bitmask(call) is None


def test_drafts_that_are_never_shown_end_the_engine(config: Any) -> None:
    engine = under_grammars(config, "a", structured="a")
    call = engine.step()
    engine.scheduler._patience_s = 0.01
    with pytest.raises(NotShownError, match=f"drafts of call {engine.scheduler._numbers.last} "):
        engine.scheduler.get_grammar_bitmask(call)


def test_a_prompt_in_the_cache_has_drafts_that_the_grammar_sees(config: Any) -> None:
    """All but its last token are there, so vLLM itself writes placeholders for it."""
    engine = two_batches(config)
    prompt = list(range(2 * BLOCK + 1))
    engine.add("r0", prompt, tokens=6)
    engine.run()
    engine.add("r1", prompt, tokens=6, structured=True)
    call = engine.step()
    assert call.scheduled_spec_decode_tokens == {"r1": PLACEHOLDERS}
    assert engine.scheduler._drafted_under_a_grammar(call) == ["r1"]
