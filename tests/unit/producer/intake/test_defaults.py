"""What can be asked for on behalf of all rows of a job."""

import pytest

from producer.intake.defaults import MAX_CHARACTERS, check_defaults, check_size, parse_object
from producer.intake.refused import Refused


def test_an_object_is_read_as_strictly_as_a_row() -> None:
    assert parse_object('{"temperature": 0, "chat_template_kwargs": {"a": null}}') == {
        "temperature": 0,
        "chat_template_kwargs": {"a": None},
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[1]", "not_an_object"),
        ("", "invalid_json"),
        ('{"seed": 1, "seed": 2}', "duplicate_key"),
        ('{"seed": NaN}', "invalid_number"),
    ],
)
def test_what_is_no_such_object_is_refused(text: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_object(text)
    assert refused.value.fault.code == code


@pytest.mark.parametrize("name", ["messages", "prompt", "custom_id", "url", "method", "body", "model", "stream"])
def test_what_is_a_rows_own_is_no_default(name: str) -> None:
    check_defaults({"temperature": 0})
    with pytest.raises(Refused, match=f'"{name}" cannot be a default'):
        check_defaults({"temperature": 0, name: None})


def test_a_default_must_be_one_that_some_row_could_have() -> None:
    check_defaults({"tools": [], "suffix": "x", "logprobs": 5, "temperature": None})  # each of one URL at least
    for asked, code in (({"temprature": 1}, "unknown_parameter"), ({"temperature": "hot"}, "invalid_request")):
        with pytest.raises(Refused) as refused:
            check_defaults(asked)
        assert refused.value.fault.code == code


def test_what_is_stored_has_a_limit_in_characters_however_it_was_spelled() -> None:
    around = len('{"user":""}')
    check_size({"user": "é" * (MAX_CHARACTERS - around)})
    with pytest.raises(Refused, match="262145 characters") as refused:
        check_size({"user": "é" * (MAX_CHARACTERS - around + 1)})
    assert refused.value.fault.code == "too_large"
