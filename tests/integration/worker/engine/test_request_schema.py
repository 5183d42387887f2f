"""What producers refuse in parameters, compared with vLLM's own classes and sampling parameters."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.sampling_params import SamplingParams

from producer.intake.parameters import SCHEMA_FILE, check_parameters, parameters_of
from producer.intake.refused import Refused
from producer.record.models import CHAT_URL, COMPLETIONS_URL, URLS, Row
from worker.engine.parameters import Abilities
from worker.engine.request_schema import RANGES, text
from worker.engine.vllm_rows import Completion, parse

_ASKED: dict[str, dict[str, Any]] = {
    CHAT_URL: {"messages": [{"role": "user", "content": "Hi"}]},
    COMPLETIONS_URL: {"prompt": "Hi"},
}
_ALL = Abilities(**dict.fromkeys(Abilities.__dataclass_fields__, True) | {"two_batches": False})
#: What some parameters need beside them.
_BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    (CHAT_URL, "top_logprobs"): {"logprobs": True},
    (COMPLETIONS_URL, "max_tokens"): {"echo": True},
}

_SCALARS: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, -2, 7, 2**63 - 1, 0.0, 1.0, 0.5, 2.0, 2.5, -2.5, 1e300),
    *("", " ", "0", "1", "-1", " 5 ", "1_0", "6.0", "0.5", "1e0", "nan", "inf", "true", "False", "no", "ON"),
    *("auto", "none", "required", "low", "left", "right", "tensors", "target", "x"),
]
_VALUES: list[Any] = [
    *_SCALARS,
    *([], [1], ["1"], ["x"], [""], [True], [None], [[1]], [{}], ["a"] * 9),
    *({}, {"1": 1}, {"1": "2"}, {"1": "x"}, {"a": "b"}, {"a": [1]}, {"a": {}}, {"a": None}),
    *({"type": "text"}, {"type": "json_object", "x": 1}, {"type": "json_schema", "json_schema": {"name": "a"}}),
    *({"json": {}}, {"choice": ["a"]}, {"regex": "a", "disable_any_whitespace": "yes"}, {"json_object": 1}),
    *({"max_pattern_size": "3", "min_count": 2}, {"include_usage": 1}),
    {"type": "function", "function": {"name": "f"}},
    [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": "true"}}],
    [{"function": {"name": "f", "description": None, "x": 1}, "defer_loading": 0.0}],
]


def _vllm_takes(url: str, given: dict[str, Any]) -> bool:
    """Whether a row with these parameters gets as far as the engine."""
    try:
        request = parse(Row(0, 1, "a", url, {**_ASKED[url], **given}), ["m"], _ALL)
        most = getattr(request, "max_completion_tokens", None)
        most = most if most is not None else request.max_tokens
        if request.use_beam_search:
            beams = request.to_beam_search_params(most or 1, {})
            SamplingParams(logprobs=2 * beams.beam_width, max_tokens=1, temperature=beams.temperature)
        else:
            request.to_sampling_params(16 if most is None else most, {})
    except Exception:
        return False
    return True


def _we_take(url: str, given: dict[str, Any]) -> bool:
    try:
        check_parameters(url, {**_ASKED[url], **given})
    except Refused:
        return False
    return True


def _names(url: str) -> list[str]:
    request = ChatCompletionRequest if url == CHAT_URL else Completion
    return sorted(set(request.model_fields) - _ASKED[url].keys())


def test_the_committed_schema_is_that_of_the_vllm_that_is_here() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == text(), "stale: run `make schema`"


@pytest.mark.parametrize("url", URLS)
def test_no_value_is_refused_that_vllm_takes(url: str) -> None:
    taken = 0
    for name in _names(url):
        for value in _VALUES:
            asked = {name: value, **_BESIDE.get((url, name), {})}
            if _vllm_takes(url, asked):
                taken += 1
                assert _we_take(url, asked), asked
    assert taken > 500


_text = st.text("0123456789+-._ eEinfaNtruly", max_size=5)
_json = st.recursive(
    st.sampled_from(_SCALARS) | st.integers(-3, 130) | st.floats(-3, 3) | st.floats(allow_nan=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "1", "type"]), inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=3000, deadline=None)
@given(st.data())
def test_no_set_of_parameters_is_refused_that_vllm_takes(data: st.DataObject) -> None:
    url = data.draw(st.sampled_from(URLS))
    names = st.sampled_from(_names(url))
    given = data.draw(st.dictionaries(names, st.sampled_from(_VALUES) | _json, min_size=1, max_size=2))
    # The one exception: vLLM does not look at a `max_tokens` beside `max_completion_tokens`.
    if {"max_tokens", "max_completion_tokens"} <= given.keys():
        del given["max_tokens"]
    assert _we_take(url, given) or not _vllm_takes(url, given), (url, given)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", "hot"), ("temperature", [0]), ("n", "x"), ("n", 0), ("stop", 5), ("stop", [5])),
        *(
            ("response_format", 3),
            ("response_format", {"type": "xml"}),
            ("response_format", {"type": "json_schema", "json_schema": {}}),
        ),
        *(("max_tokens", "many"), ("max_tokens", 1.5), ("top_k", [1]), ("seed", 1.5), ("logit_bias", [1])),
        *(("logit_bias", {"1": "x"}), ("ignore_eos", "maybe"), ("ignore_eos", None), ("bad_words", "x")),
        *(("truncation_side", "up"), ("structured_outputs", "x"), ("structured_outputs", {"regex": 1})),
        *(("model", 1), ("user", 1), ("stop_token_ids", ["x"]), ("nonsense", 1), ("truncate_prompt_tokens", -2)),
    ],
)
def test_what_is_plainly_wrong_is_refused_by_both(url: str, name: str, value: object) -> None:
    assert not _vllm_takes(url, {name: value})
    assert not _we_take(url, {name: value})


def _edges(bounds: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """Values at the ends of a range, and whether they are in it."""
    if "minLength" in bounds:
        yield from ((["a"], True), ([""], False))
    if "minimum" in bounds:
        yield from ((bounds["minimum"], True), (bounds["minimum"] - 1, False))
    if "exclusiveMinimum" in bounds:
        yield from ((bounds["exclusiveMinimum"] + 0.125, True), (bounds["exclusiveMinimum"], False))
    if "maximum" in bounds:
        yield from ((bounds["maximum"], True), (bounds["maximum"] + 0.125, False))


@pytest.mark.parametrize(
    ("url", "name"), [(url, name) for url in URLS for name in RANGES if name in parameters_of(url)]
)
def test_ranges_are_vllms(url: str, name: str) -> None:
    bounds = dict(RANGES[name])
    if (url, name) == (CHAT_URL, "logprobs"):
        bounds = {"minimum": 0, "maximum": 1}  # there it is a boolean
    if (url, name) == (COMPLETIONS_URL, "max_tokens"):
        bounds = {"minimum": 0}
    for value, within in _edges(bounds):
        asked = {name: value, **_BESIDE.get((url, name), {})}
        if asked == {"max_tokens": 0, "echo": True}:
            continue  # the serving code gives such a row one token, and takes it off again
        assert (_vllm_takes(url, asked), _we_take(url, asked)) == (within, within), asked
