"""What every engine refuses in a row."""

import pytest

from producer.record.models import CHAT_URL, COMPLETIONS_URL, Row
from worker.engine.protocol import RowError
from worker.engine.rows import check_fields, check_row, one_line


def row(url: str = CHAT_URL, **body: object) -> Row:
    return Row(index=0, line=1, custom_id="a", url=url, body=body)


@pytest.mark.parametrize("body", [{}, {"model": "m"}, {"model": "target"}, {"model": None}, {"stream": False}])
def test_a_good_row_passes(body: dict[str, object]) -> None:
    check_row(row(**body), ["m"])


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (row(url="/v1/embeddings"), "unsupported_url", ["/v1/embeddings", COMPLETIONS_URL]),
        (row(url="u" * 9999), "unsupported_url", [CHAT_URL]),
        (row(model="other"), "model_not_found", ["'other'", "'m'"]),
        (row(model="x" * 9999), "model_not_found", []),
        (row(stream=True), "streaming_not_supported", ["stream"]),
    ],
)
def test_a_bad_row_is_refused_with_a_reason(bad: Row, code: str, words: list[str]) -> None:
    with pytest.raises(RowError) as refused:
        check_row(bad, ["m"])
    fault = refused.value.fault
    assert fault.code == code
    assert all(word in fault.message for word in words)
    assert "\n" not in fault.message
    assert len(fault.message) <= 500


def test_an_unknown_parameter_is_named() -> None:
    check_fields(row(seed=1), {"seed"})
    with pytest.raises(RowError, match='"guided_json"') as refused:
        check_fields(row(seed=1, guided_json={}), {"seed"})
    assert refused.value.fault.code == "unknown_parameter"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n  b\tc ", "a b c"),
        ("x" * 9, "xxxxx..."),
        ("x" * 8, "x" * 8),
        ("\u2028a", "a"),
        ("", ""),
        ("\x1b[2J\x9b1m", "?[2J?1m"),
        ("\u202ea\ud800", "?a?"),
        ("é😀", "é😀"),
    ],
)
def test_one_line(text: str, line: str) -> None:
    assert one_line(text, most=8) == line
