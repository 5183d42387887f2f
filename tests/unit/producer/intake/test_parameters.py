"""What a row's parameters may be, before any engine sees them."""

import json
from typing import Any

import pytest

from producer.intake import parameters
from producer.intake.parameters import SCHEMA_FILE, check_parameters, no_such_parameter, parameters_of
from producer.intake.refused import Refused
from producer.record.models import CHAT_URL, COMPLETIONS_URL, URLS, RowFault

MESSAGES = [{"role": "user", "content": "Hi"}]


def fault(url: str, **given: Any) -> RowFault:
    with pytest.raises(Refused) as refused:
        check_parameters(url, given)
    return refused.value.fault


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"temperature": 0, "top_p": 1, "top_k": -1, "max_tokens": 1, "n": 2, "seed": -1, "stop": ["a", "b"]},
        {"temperature": 2.0, "stop": "a", "stop_token_ids": [1], "logit_bias": {"1": -100}, "user": None},
        # As lax as vLLM's classes are.
        {"temperature": "0.5", "max_tokens": "12", "n": 1.0, "ignore_eos": "yes", "min_tokens": True, "top_p": "nan"},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}},
        {"response_format": {"type": "structural_tag", "format": 1}, "structured_outputs": {"choice": ["a"], "x": 1}},
        {"model": "target", "chat_template_kwargs": {"a": [1, {"b": None}]}} | {"chat_template_kwargs": None},
    ],
)
def test_what_vllm_takes_is_taken(url: str, given: dict[str, Any]) -> None:
    given = {name: value for name, value in given.items() if name in parameters_of(url)}
    check_parameters(url, given)
    check_parameters(url, given)  # once more, remembered


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperature": "hot"}, '"temperature" must be a number from 0 to 2, not "hot"'),
        ({"temperature": 2.5}, '"temperature" must be a number from 0 to 2, not 2.5'),
        ({"top_p": 0}, '"top_p" must be a number above 0 and of at most 1, not 0'),
        ({"n": "x"}, '"n" must be an integer of at least 1, not "x"'),
        ({"n": 0}, '"n" must be an integer of at least 1, not 0'),
        ({"max_tokens": "many"}, '"max_tokens" must be an integer of at least 1, not "many"'),
        ({"max_tokens": 1.5}, '"max_tokens" must be an integer of at least 1, not 1.5'),
        ({"max_tokens": 0}, '"max_tokens" must be an integer of at least 1, not 0'),
        ({"top_k": [1]}, '"top_k" must be an integer of at least -1, not an array'),
        ({"stop": 5}, '"stop" must be a string that is not empty or an array of strings, not 5'),
        ({"stop": ["a", ""]}, '"stop[1]" must be a string that is not empty, not ""'),
        ({"ignore_eos": None}, '"ignore_eos" must be true or false, not null'),
        ({"tools": [{"function": {}}]}, '"tools[0].function" has no "name"'),
        ({"tool_choice": "any"}, '"tool_choice" must be an object or "none", "auto" or "required", not "any"'),
        ({"logit_bias": {"7": "x"}}, '"logit_bias.7" must be a number, not "x"'),
        (
            {"response_format": 3},
            '"response_format" must be an object whose "type" is "text", "json_object", "json_schema" or '
            '"structural_tag", not 3',
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            '"response_format.json_schema" has no "name"',
        ),
    ],
)
def test_what_no_vllm_would_take_is_refused_in_words(given: dict[str, Any], message: str) -> None:
    assert fault(CHAT_URL, messages=MESSAGES, **given) == RowFault("invalid_request", message)


def test_an_unknown_parameter_is_named_with_what_was_meant() -> None:
    meant = fault(COMPLETIONS_URL, prompt="x", temprature=1)
    assert meant == RowFault(
        "unknown_parameter", '/v1/completions has no parameter "temprature"; did you mean "temperature"?'
    )
    other = fault(COMPLETIONS_URL, tools=[]).message
    assert other == '/v1/completions has no parameter "tools", only /v1/chat/completions has'
    assert fault(CHAT_URL, foo=1).message == '/v1/chat/completions has no parameter "foo"'
    assert no_such_parameter("/v1/x", "sed", ["seed"]) == '/v1/x has no parameter "sed"; did you mean "seed"?'


def test_messages_stay_short_and_harmless_whatever_was_given() -> None:
    for given in ({"\x1b]0;\x07\x7f\u202e" * 9: 1}, {"user": ["\x1b"]}, {"temperature": "\x9b\x7f" * 10_000}):
        message = fault(CHAT_URL, **given).message
        assert message.isprintable()
        assert len(message) < 500


def test_equal_looking_values_of_other_types_are_told_apart() -> None:
    """To Python 1, 1.0 and true are equal: what is remembered must not mix them up."""
    check_parameters(CHAT_URL, {"thinking_token_budget": 1})
    check_parameters(CHAT_URL, {"response_format": {"type": "text"}, "user": "1"})
    assert fault(CHAT_URL, user=1).code == "invalid_request"
    check_parameters(CHAT_URL, {"chat_template_kwargs": {"a": 1}, "documents": []})
    assert fault(CHAT_URL, documents={}).code == "invalid_request"


def test_what_is_remembered_is_bounded() -> None:
    for seed in range(5000):
        check_parameters(CHAT_URL, {"messages": MESSAGES, "seed": seed})
    check_parameters(CHAT_URL, {"chat_template": "x" * 100_000})
    good = parameters._known(CHAT_URL).good
    assert 0 < len(good) <= 256
    assert max(map(len, good)) <= 2**13


def test_the_schema_says_which_vllm_it_is_of_and_knows_no_prompts() -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    assert schema["vllm"]
    assert sorted(schema["urls"]) == sorted(URLS)
    assert {"temperature", "tools"} < set(parameters_of(CHAT_URL))
    assert not {"messages", "prompt"} & {*parameters_of(CHAT_URL), *parameters_of(COMPLETIONS_URL)}
