import json

import pytest
from fuzz_lines import fuzzed_lines, giants
from hypothesis import given
from hypothesis import strategies as st

from producer.intake.lines import Line, TooLong
from producer.intake.rows import MAX_CUSTOM_ID_CHARS, Reject, parse_line
from producer.record.models import CHAT_URL, COMPLETIONS_URL, Row, RowFault

MESSAGES = [{"role": "user", "content": "Hi"}]


def parse(value: object, number: int = 7) -> Row | Reject:
    text = value if isinstance(value, str | bytes) else json.dumps(value)
    return parse_line(Line(number, text if isinstance(text, bytes) else text.encode()), 3)


def batch(**fields: object) -> dict[str, object]:
    line = {"custom_id": "a", "method": "POST", "url": CHAT_URL, "body": {"messages": MESSAGES}}
    return {**line, **fields}


def without(line: dict[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in line.items() if name not in names}


class TestAccepted:
    def test_a_batch_line_for_chat(self):
        body = {"model": "m", "messages": MESSAGES, "max_tokens": 5, "stream": False}
        assert parse(batch(body=body)) == Row(3, 7, "a", CHAT_URL, body)

    def test_a_batch_line_for_completions(self):
        body = {"prompt": "Hi"}
        assert parse(batch(url=COMPLETIONS_URL, body=body)) == Row(3, 7, "a", COMPLETIONS_URL, body)

    def test_short_lines(self):
        assert parse({"prompt": "Hi", "temperature": 0}) == Row(
            3, 7, "row-7", COMPLETIONS_URL, {"prompt": "Hi", "temperature": 0}
        )
        assert parse({"messages": MESSAGES, "custom_id": "x", "seed": 1}) == Row(
            3, 7, "x", CHAT_URL, {"messages": MESSAGES, "seed": 1}
        )

    def test_a_batch_line_without_custom_id_is_named_by_its_line(self):
        assert parse(without(batch(), "custom_id")).custom_id == "row-7"

    def test_in_a_job_of_several_files_names_are_implied_by_file_and_line(self):
        assert parse_line(Line(7, b'{"prompt": "Hi"}', "a/b.jsonl"), 3) == Row(
            3, 7, "a/b.jsonl:7", COMPLETIONS_URL, {"prompt": "Hi"}, "a/b.jsonl"
        )
        refused = parse_line(Line(7, b'{"prompt": ""}', "b.jsonl"), 3)
        assert (refused.custom_id, refused.line, refused.file) == ("b.jsonl:7", 7, "b.jsonl")
        assert parse_line(TooLong(7, 11, 10, "b.jsonl"), 3).file == "b.jsonl"

    def test_the_unused_one_of_prompt_and_messages_may_be_null(self):
        assert parse({"prompt": None, "messages": MESSAGES}).url == CHAT_URL

    @pytest.mark.parametrize("prompt", ["Hi", " ", [1, 2], ["a", "b"], [[1], [2, 3]], ["a", [0]], [0]])
    def test_prompts(self, prompt):
        row = parse({"prompt": prompt})
        if prompt == ["a", [0]]:  # a mixture is not among OpenAI's types
            assert row.fault.code == "invalid_prompt"
        else:
            assert row.body == {"prompt": prompt}

    @pytest.mark.parametrize(
        "custom_id", ["a", " a b ", "é\u2028", "😀", "x" * MAX_CUSTOM_ID_CHARS, '"quoted"', "row-9"]
    )
    def test_custom_ids(self, custom_id):
        assert parse({"prompt": "Hi", "custom_id": custom_id}).custom_id == custom_id

    def test_numbers_up_to_64_bits_and_paired_surrogates(self):
        row = parse(
            '{"prompt": "\\ud83d\\ude00", "seed": -9223372036854775808, "logit_bias": {"9": 9223372036854775807}}'
        )
        assert row.body == {"prompt": "😀", "seed": -(2**63), "logit_bias": {"9": 2**63 - 1}}
        assert parse('{"prompt": "Hi", "length_penalty": 1.5e300}').body["length_penalty"] == 1.5e300

    def test_a_hundred_levels_of_nesting(self):
        nested: object = "x"
        for _ in range(98):
            nested = [nested]
        assert isinstance(parse({"prompt": "Hi", "kv_transfer_params": {"x": nested}}), Row)
        assert parse({"prompt": "Hi", "kv_transfer_params": {"x": [nested]}}).fault.code == "nested_too_deep"
        assert isinstance(parse({"prompt": "[{" * 5000}), Row)

    def test_line_separators_and_white_space_around(self):
        assert parse(' \t{"prompt": "a\u2028b\u0085c"}\r').body == {"prompt": "a\u2028b\u0085c"}


REFUSED = {
    "bad utf-8": (b'{"prompt": "\xff"}', None, "invalid_utf8", "byte 0xff at position 13"),
    "encoded surrogate": (b'{"prompt": "\xed\xa0\x80"}', None, "invalid_utf8", "byte 0xed"),
    "utf-16": ("\ufeff{}".encode("utf-16-le"), None, "invalid_utf8", "position 1"),
    "no json": ("hello", None, "invalid_json", "column 1"),
    "bom inside the file": ("\ufeff{}", None, "invalid_json", "column 1"),
    "cut off": ('{"custom_id": "a", "prompt": "Hi', None, "invalid_json", "column 30"),
    "trailing comma": ('{"prompt": "Hi",}', None, "invalid_json", "column"),
    "two objects": ('{"prompt": "Hi"} {"prompt": "Ho"}', None, "invalid_json", "extra data (column 18)"),
    "single quotes": ("{'prompt': 'Hi'}", None, "invalid_json", "column 2"),
    "raw tab in a string": ('{"prompt": "a\tb"}', None, "invalid_json", "column 14"),
    "raw NUL": ('{"prompt": "a\0b"}', None, "invalid_json", "column 14"),
    "array": ("[1]", None, "not_an_object", "an array"),
    "string": ('"Hi"', None, "not_an_object", "a string"),
    "number": ("1", None, "not_an_object", "a number"),
    "true": ("true", None, "not_an_object", "a boolean"),
    "null": ("null", None, "not_an_object", "null"),
    "duplicate key": ('{"custom_id": "a", "prompt": "x", "prompt": "y"}', "a", "duplicate_key", '"prompt"'),
    "duplicate key within": ('{"messages": [{"role": "a", "role": "a"}]}', "row-7", "duplicate_key", '"role"'),
    "duplicate escaped": ('{"custom_id": "a", "prompt": "x", "pr\\u006fmpt": "y"}', "a", "duplicate_key", '"prompt"'),
    "duplicate custom_id": ('{"custom_id": "a", "custom_id": "a", "prompt": "x"}', None, "duplicate_key", "custom_id"),
    "long duplicate key": ('{"' + "k" * 999 + '": 1, "' + "k" * 999 + '": 1}', "row-7", "duplicate_key", "k..."),
    "NaN": ('{"custom_id": "a", "prompt": "x", "top_p": NaN}', "a", "invalid_number", "NaN"),
    "-Infinity": ('{"prompt": "x", "top_p": [-Infinity]}', "row-7", "invalid_number", "-Infinity"),
    "overflow": ('{"prompt": "x", "top_p": 1e400}', "row-7", "number_out_of_range", "float"),
    "overflow by digits": ('{"prompt": "x", "p": ' + "9" * 400 + ".0}", "row-7", "number_out_of_range", "float"),
    "overflow, capital": ('{"prompt": "x", "p": -123.5E+307}', "row-7", "number_out_of_range", "float"),
    "65 bits": ('{"prompt": "x", "seed": 9223372036854775808}', "row-7", "number_out_of_range", "64 bits"),
    "negative": ('{"prompt": "x", "seed": -9223372036854775809}', "row-7", "number_out_of_range", "64 bits"),
    "5000 digits": ('{"custom_id": "a", "seed": ' + "9" * 5000 + "}", "a", "number_out_of_range", "64 bits"),
    "deep": ("[" * 100_000 + "]" * 100_000, None, "nested_too_deep", "100 levels"),
    "deep, open": ("[" * 100_000, None, "nested_too_deep", "100 levels"),
    "deep objects": ('{"a":' * 100_000 + "1" + "}" * 100_000, None, "nested_too_deep", "100 levels"),
    "rather deep": ('{"custom_id":"a","x":' + "[" * 200 + "]" * 200 + "}", "a", "nested_too_deep", "100 levels"),
    "surrogate in a value": ('{"custom_id": "a", "prompt": "\\ud800"}', "a", "lone_surrogate", "half"),
    "surrogate, low, capital": ('{"prompt": ["\\uDFFF"]}', "row-7", "lone_surrogate", "half"),
    "surrogates in the wrong order": ('{"prompt": "\\ude00\\ud83d"}', "row-7", "lone_surrogate", "half"),
    "surrogate in a key": ('{"prompt": "x", "logit_bias": {"\\ud800": 1}}', "row-7", "lone_surrogate", "half"),
    "surrogate in custom_id": ('{"custom_id": "\\ud800", "prompt": "x"}', None, "lone_surrogate", "half"),
    "custom_id number": ({"custom_id": 7, "prompt": "x"}, None, "invalid_custom_id", "write it in quotes"),
    "custom_id null": ({"custom_id": None, "prompt": "x"}, None, "invalid_custom_id", "null"),
    "custom_id object": ({"custom_id": {"a": 1}, "prompt": "x"}, None, "invalid_custom_id", "an object"),
    "custom_id empty": ({"custom_id": "", "prompt": "x"}, None, "invalid_custom_id", "empty"),
    "custom_id long": ({"custom_id": "x" * 513, "prompt": "x"}, None, "invalid_custom_id", "513 characters"),
    "custom_id NUL": ({"custom_id": "a\0", "prompt": "x"}, None, "invalid_custom_id", "control character"),
    "custom_id newline": ({"custom_id": "a\nb", "prompt": "x"}, None, "invalid_custom_id", "control character"),
    "custom_id escape": ({"custom_id": "\x9b1m", "prompt": "x"}, None, "invalid_custom_id", "control character"),
    "empty object": ({}, "row-7", "missing_prompt", "neither"),
    "only custom_id": ({"custom_id": "a"}, "a", "missing_prompt", "neither"),
    "both": ({"prompt": "x", "messages": MESSAGES}, "row-7", "prompt_and_messages", "both"),
    "null prompt": ({"prompt": None}, "row-7", "missing_prompt", "neither"),
    "unknown url": (batch(url="/v1/embeddings"), "a", "unknown_url", CHAT_URL),
    "url array": (batch(url=[]), "a", "unknown_url", CHAT_URL),
    "no url": (without(batch(), "url"), "a", "unknown_url", CHAT_URL),
    "GET": (batch(method="GET"), "a", "invalid_method", "POST"),
    "lower case": (batch(method="post"), "a", "invalid_method", "POST"),
    "no method": (without(batch(), "method"), "a", "invalid_method", "POST"),
    "no body": (without(batch(), "body"), "a", "invalid_body", "missing"),
    "null body": (batch(body=None), "a", "invalid_body", "null"),
    "text body": (batch(body="{}"), "a", "invalid_body", "a string"),
    "only body": ({"body": {"prompt": "x"}}, "row-7", "invalid_method", "POST"),
    "unknown field": (batch(extra=1), "a", "unknown_field", '"extra"'),
    "mixed forms": ({"prompt": "x", "url": COMPLETIONS_URL}, "row-7", "unknown_field", '"prompt"'),
    "chat without messages": (batch(body={"prompt": "x"}), "a", "missing_messages", '"messages"'),
    "completion without prompt": (batch(url=COMPLETIONS_URL), "a", "missing_prompt", '"prompt"'),
    "both in a body": (batch(body={"prompt": "x", "messages": MESSAGES}), "a", "prompt_and_messages", "both"),
    "messages text": ({"messages": "Hi"}, "row-7", "invalid_messages", "a string"),
    "messages object": ({"messages": MESSAGES[0]}, "row-7", "invalid_messages", "an object"),
    "messages empty": ({"messages": []}, "row-7", "invalid_messages", "empty"),
    "messages of texts": ({"messages": [*MESSAGES, "Hi"]}, "row-7", "invalid_messages", '"messages"[1] is a string'),
    "prompt number": ({"prompt": 5}, "row-7", "invalid_prompt", "a number"),
    "prompt false": ({"prompt": False}, "row-7", "invalid_prompt", "a boolean"),
    "prompt object": ({"prompt": {}}, "row-7", "invalid_prompt", "an object"),
    "prompt of booleans": ({"prompt": [True]}, "row-7", "invalid_prompt", "token ids"),
    "prompt of floats": ({"prompt": [1.0]}, "row-7", "invalid_prompt", "token ids"),
    "prompt mixed": ({"prompt": [1, "a"]}, "row-7", "invalid_prompt", "token ids"),
    "prompt of nulls": ({"prompt": [None]}, "row-7", "invalid_prompt", "token ids"),
    "prompts mixed": ({"prompt": [[1], ["a"]]}, "row-7", "invalid_prompt", "token ids"),
    "prompt too nested": ({"prompt": [[[1]]]}, "row-7", "invalid_prompt", "token ids"),
    "negative token": ({"prompt": [1, -1]}, "row-7", "invalid_prompt", "negative"),
    "prompt empty": ({"prompt": ""}, "row-7", "empty_prompt", '"prompt" is empty'),
    "no tokens": ({"prompt": []}, "row-7", "empty_prompt", '"prompt" is empty'),
    "an empty one": ({"prompt": ["a", ""]}, "row-7", "empty_prompt", "holds an empty prompt"),
    "one without tokens": ({"prompt": [[1], []]}, "row-7", "empty_prompt", "holds an empty prompt"),
    "stream": ({"prompt": "x", "stream": True}, "row-7", "streaming_not_supported", "false"),
    "stream 1": (batch(body={"messages": MESSAGES, "stream": 1}), "a", "streaming_not_supported", "false"),
    "stream text": ({"prompt": "x", "stream": "true"}, "row-7", "streaming_not_supported", "false"),
}


@pytest.mark.parametrize(("line", "custom_id", "code", "word"), REFUSED.values(), ids=REFUSED)
def test_refused(line, custom_id, code, word):
    reject = parse(line)
    assert isinstance(reject, Reject)
    assert (reject.index, reject.line, reject.custom_id, reject.fault.code) == (3, 7, custom_id, code)
    assert word in reject.fault.message
    assert len(reject.fault.message) < 250
    assert reject.fault.message.isprintable()


def test_a_line_too_long():
    reject = parse_line(TooLong(9, 2000, 1000), 4)
    assert (reject.index, reject.line, reject.custom_id, reject.fault.code) == (4, 9, None, "line_too_long")
    assert "2000 bytes" in reject.fault.message


def check_storable(line: bytes) -> None:
    result = parse_line(Line(1, line), 0)
    if isinstance(result, Row):
        assert Row.from_json(0, result.to_json().encode()) == result
    else:
        assert result.fault.message.isprintable()


@given(st.binary(max_size=200))
def test_any_bytes_have_an_outcome(line):
    check_storable(line)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda parts: (
        st.lists(parts, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=4), parts, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["custom_id", "method", "url", "body", "prompt", "messages", "stream", "seed"]), json_values
    ),
    st.booleans(),
)
def test_any_object_has_an_outcome_and_a_row_can_be_stored(fields, in_body):
    check_storable(json.dumps(batch(body=fields) if in_body else fields).encode())


def test_fuzzed_lines_have_outcomes_of_every_kind():
    codes = set()
    for number, line in enumerate([*fuzzed_lines(3000, seed=2), *giants()], 1):
        check_storable(line)
        result = parse_line(Line(number, line), 0)
        codes.add(result.fault.code if isinstance(result, Reject) else "accepted")
        assert isinstance(result, Row) or len(result.fault.message) < 250
    assert codes >= {code for _, _, code, _ in REFUSED.values()} | {"accepted"}, "the generator has become tame"


@given(st.lists(st.sampled_from(["[", '{"a":', "]", "}", "1", ",", '"', "\\", "\x1b", "\ufeff"]), max_size=40))
def test_any_pieces_of_json_have_an_outcome(pieces):
    check_storable("".join(pieces).encode())


def test_a_fault_that_reading_found_holds_and_the_line_keeps_its_name():
    fault = RowFault("missing_prompt", "the row has no value")
    assert parse_line(Line(7, b'{"custom_id":"a","prompt":"x"}', "", fault), 3) == Reject(3, 7, "a", fault)
    assert parse_line(Line(7, b'{"row":["x"]}', "f", fault), 3) == Reject(3, 7, "f:7", fault, "f")
