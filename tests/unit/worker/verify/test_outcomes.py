"""What of two answers is not the same."""

import copy
from typing import Any

import pytest

from worker.verify.outcomes import differences


def chat(**message: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello", "tool_calls": [], **message},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def test_names_and_times_of_an_answer_are_no_part_of_it() -> None:
    other = chat() | {"id": "chatcmpl-2", "created": 99}
    assert differences(chat(), other) == []


def test_logprobs_are_no_part_of_it_and_null_is_as_good_as_nothing() -> None:
    job, plain = chat(), chat()
    job["choices"][0]["logprobs"] = {"content": [{"token": "hello", "logprob": -0.1}]}
    del plain["choices"][0]["stop_reason"]
    assert differences(job, plain) == []


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("message", "content"), "hallo", "message.content"),
        (("message", "reasoning"), "hm", "message.reasoning"),
        (("message", "refusal"), "no", "message.refusal"),
        (("finish_reason",), "length", "finish_reason"),
        (("stop_reason",), 7, "stop_reason"),
        (("token_ids",), [1, 2], "token_ids"),
    ],
)
def test_every_field_of_a_choice_counts(path: tuple[str, ...], value: Any, field: str) -> None:
    other = chat()
    place = other["choices"][0]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (found,) = differences(chat(), other)
    assert (found.choice, found.fields) == (0, (field,))


def call(name: str, made_up: str) -> dict[str, Any]:
    return {"id": made_up, "type": "function", "function": {"name": name, "arguments": "{}"}}


def test_the_ids_of_tool_calls_are_made_up_their_functions_are_not() -> None:
    one, same, other = (chat(tool_calls=[call(*made)]) for made in (("f", "a"), ("f", "b"), ("g", "a")))
    assert differences(one, same) == []
    (found,) = differences(one, other)
    assert found.fields == ("message.tool_calls",)


def test_choices_are_matched_by_their_index() -> None:
    job = {"choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]}
    plain = {"choices": [{"index": 1, "text": "b"}, {"index": 0, "text": "a"}]}
    assert differences(job, plain) == []
    plain["choices"][0]["text"] = "c"
    (found,) = differences(job, plain)
    assert (found.choice, found.job, found.plain) == (1, "b", "c")


def test_another_number_of_choices_is_a_difference() -> None:
    (found,) = differences({"choices": []}, {"choices": [{"index": 0, "text": "a"}]})
    assert (found.choice, found.fields) == (None, ("choices",))


def test_another_prompt_is_said_first_for_all_else_follows() -> None:
    other = chat(content="bye")
    other["usage"]["prompt_tokens"] = 4
    (found,) = differences(chat(), other)
    assert (found.choice, found.fields, found.job, found.plain) == (None, ("usage.prompt_tokens",), "3", "4")


def test_the_same_text_in_other_tokens_is_a_difference() -> None:
    other = copy.deepcopy(chat())
    other["usage"]["completion_tokens"] = 3
    (found,) = differences(chat(), other)
    assert found.fields == ("usage.completion_tokens",)


def test_what_is_shown_is_around_the_place() -> None:
    (found,) = differences(chat(content="x" * 100 + "a" * 100), chat(content="x" * 100 + "b"))
    assert found.job == "..." + "x" * 16 + "a" * 32
    assert found.plain == "..." + "x" * 16 + "b"
