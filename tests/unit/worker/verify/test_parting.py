"""At which token two answers part, and how sure plain decoding was."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.verify.parting import closest, part

#: Of a tiny tokenizer whose token 0 is special, and 8 and 9 are the halves of a character.
PIECES = ["", "a", "b", "ab", "c", " ", "abc", "d"]
EOS, HALF, OTHER_HALF = 0, 8, 9


def decode(ids: Sequence[int]) -> str:
    text = ""
    for before, token in zip([None, *ids], ids, strict=False):
        if token == HALF:
            text += "\ufffd"
        elif token == OTHER_HALF:
            text = text.removesuffix("\ufffd") + ("é" if before == HALF else "\ufffd")
        else:
            text += PIECES[token]
    return text


def logprobs(steps: Sequence[dict[int, float]], *, chat: bool) -> dict[str, Any]:
    """As vLLM gives them; the first of a step is what was chosen."""
    named = [{f"token_id:{token}": logit for token, logit in step.items()} for step in steps]
    chosen = [next(iter(step.items())) for step in named]
    if chat:
        return {
            "content": [
                {
                    "token": token,
                    "logprob": logit,
                    "top_logprobs": [{"token": name, "logprob": value} for name, value in step.items()],
                }
                for (token, logit), step in zip(chosen, named, strict=True)
            ]
        }
    return {
        "tokens": [token for token, _ in chosen],
        "token_logprobs": [logit for _, logit in chosen],
        "top_logprobs": named,
    }


def plain(*steps: dict[int, float], chat: bool = False, ids: bool = False, end: str = "stop") -> dict[str, Any]:
    tokens = [next(iter(step)) for step in steps]
    made = answer(decode(tokens), chat=chat, ids=tokens if ids else None, end=end)
    return {**made, "logprobs": logprobs(steps, chat=chat)}


def answer(text: str, *, chat: bool = False, ids: list[int] | None = None, end: str = "stop") -> dict[str, Any]:
    said = {"message": {"content": text}} if chat else {"text": text}
    return {"index": 0, **said, "token_ids": ids, "finish_reason": end, "stop_reason": None}


@pytest.mark.parametrize("chat", [False, True])
def test_the_gap_is_between_both_tokens_at_the_first_that_differs(chat: bool) -> None:
    found = part(
        plain({1: 5.0, 2: 1.0}, {2: 4.0, 4: 3.75, 7: 0.0}, {EOS: 9.0, 1: 0.0}, chat=chat),
        answer("ac", chat=chat),
        decode,
    )
    assert found is not None
    assert (found.token, found.gap, found.at_least, found.size) == (1, 0.25, False, 4.0)


def test_a_token_that_is_no_candidate_is_at_least_so_far_away() -> None:
    found = part(plain({1: 5.0, 2: 1.0, 4: -2.0}), answer("d"), decode)
    assert found is not None
    assert (found.token, found.gap, found.at_least) == (0, 7.0, True)


def test_of_tokens_that_the_text_may_go_on_with_the_likeliest_counts() -> None:
    found = part(plain({4: 5.0, 1: 1.0, 6: 3.0, 3: 2.0}), answer("abcd"), decode)
    assert found is not None
    assert found.gap == 2.0


def test_an_answer_that_ended_earlier_ended_with_a_special_token() -> None:
    steps = ({1: 5.0, 2: 1.0}, {2: 4.0, 4: 3.9, EOS: 3.0})
    found = part(plain(*steps), answer("a"), decode)
    assert found is not None
    assert (found.token, found.gap) == (1, 1.0)
    assert part(plain(*steps), answer("a", end="length"), decode) is None


def test_an_answer_that_goes_on_parts_at_plain_decoding_s_end() -> None:
    found = part(plain({1: 5.0, 2: 1.0}, {EOS: 4.0, 4: 3.0}), answer("ac"), decode)
    assert found is not None
    assert (found.token, found.gap) == (1, 1.0)
    assert part(plain({1: 5.0, 2: 1.0}, {2: 4.0, 4: 3.0}, end="length"), answer("abc"), decode) is None


def test_the_halves_of_a_character_are_one_text() -> None:
    found = part(plain({HALF: 5.0, 1: 1.0}, {OTHER_HALF: 4.0, HALF: 1.0}, {1: 3.0, 2: 2.5}), answer("éb"), decode)
    assert found is not None
    assert (found.token, found.gap) == (2, 0.5)
    found = part(plain({1: 3.0, HALF: 2.5}, {EOS: 1.0, 1: 0.0}), answer("é"), decode)
    assert found is not None
    assert (found.token, found.gap) == (0, 0.5)


def test_token_ids_say_more_than_the_text() -> None:
    found = part(plain({1: 5.0, 3: 4.5}, {2: 3.0, 4: 1.0}, ids=True), answer("abd", ids=[3, 7]), decode)
    assert found is not None
    assert (found.token, found.gap, found.at_least) == (0, 0.5, False)


def test_nothing_is_said_where_no_token_differs() -> None:
    one = plain({1: 5.0, 2: 1.0}, {EOS: 4.0, 4: 3.0}, ids=True)
    assert part(one, answer("a", ids=[1, EOS]), decode) is None
    assert part(plain({1: 5.0, 2: 1.0}), answer("a", end="length"), decode) is None
    assert part({**one, "logprobs": None, "token_ids": None}, answer("b"), decode) is None


@pytest.mark.parametrize("name", ["tool_calls", "reasoning"])
def test_a_text_that_a_parser_took_apart_is_not_followed(name: str) -> None:
    job = answer("b", chat=True)
    job["message"][name] = ["something"]
    assert part(plain({1: 5.0, 2: 1.0}, chat=True), job, decode) is None


def test_the_place_where_plain_decoding_was_least_sure() -> None:
    found = closest(plain({1: 5.0, 2: 1.0}, {2: 4.0, 4: 3.5, 7: 3.9}, {1: 2.0, 2: 1.0}))
    assert found is not None
    assert found.token == 1
    assert found.gap == pytest.approx(0.1)
    assert closest({"logprobs": None}) is None


@settings(deadline=None)
@given(st.lists(st.sampled_from([1, 2, 4, 5, 7]), min_size=1, max_size=30), st.data())
def test_any_token_that_is_put_in_another_s_place_is_found(tokens: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(tokens) - 1))
    other = data.draw(st.sampled_from([token for token in [1, 2, 4, 5, 7] if token != tokens[at]]))
    steps = [{token: 2.0, (other if place == at else EOS): 1.5} for place, token in enumerate(tokens)]
    found = part(plain(*steps), answer(decode([*tokens[:at], other, *tokens[at + 1 :]])), decode)
    assert found is not None
    assert (found.token, found.gap, found.at_least) == (at, 0.5, False)
