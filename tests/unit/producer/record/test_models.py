"""The wire format."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.record.models import CHAT_URL, Answer, JobState, Outcome, Row, RowFault

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, st.dictionaries(texts, st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts))
def test_a_row_survives_the_wire(custom_id: str, body: dict[str, object]) -> None:
    row = Row(index=3, line=7, custom_id=custom_id, url=CHAT_URL, body=body)
    assert Row.from_json(3, row.to_json().encode()) == row
    assert "file" not in json.loads(row.to_json())


def test_a_row_of_several_files_says_which() -> None:
    row = Row(3, 7, "a", CHAT_URL, {}, "x.jsonl")
    assert Row.from_json(3, row.to_json()) == row
    with pytest.raises(ValueError, match="wrong type"):
        Row.from_json(3, row.to_json().replace('"x.jsonl"', "null"))
    error = json.loads(Outcome.failed_row(4, 9, None, RowFault("invalid_json", "not JSON"), "x.jsonl").line)["error"]
    assert error == {"code": "invalid_json", "message": "not JSON", "line": 9, "file": "x.jsonl"}


def test_what_a_row_says_itself_holds_over_its_jobs_defaults() -> None:
    row = Row(index=3, line=7, custom_id="a", url=CHAT_URL, body={"seed": 1, "stop": None})
    assert row.over({"seed": 2, "stop": "x", "n": 3}).body == {"seed": 1, "stop": None, "n": 3}
    assert row.over({}) == row
    assert row.body == {"seed": 1, "stop": None}


@given(texts)
def test_a_result_is_one_line_whatever_the_text(text: str) -> None:
    row = Row(index=0, line=1, custom_id=text, url=CHAT_URL, body={})
    for outcome in (
        Outcome.answered(row, Answer({"text": text}, 1, 2)),
        Outcome.failed_row(0, 1, text, RowFault("bad", text)),
    ):
        assert "\n" not in outcome.line
        assert json.loads(outcome.line)["custom_id"] == text


def test_an_answer_has_the_shape_of_openai_s_batch_output() -> None:
    row = Row(index=0, line=1, custom_id="a", url=CHAT_URL, body={})
    body = {"choices": [], "usage": {"total_tokens": 3}}
    outcome = Outcome.answered(row, Answer(body, 1, 2))
    line = json.loads(outcome.line)
    assert set(line) == {"id", "custom_id", "response", "error"}
    assert line["custom_id"] == "a"
    assert line["error"] is None
    assert line["response"]["status_code"] == 200
    assert line["response"]["body"] == body
    assert (outcome.failed, outcome.prompt_tokens, outcome.completion_tokens) == (False, 1, 2)


def test_an_error_line_says_which_line_is_meant() -> None:
    outcome = Outcome.failed_row(4, 9, None, RowFault("invalid_json", "not JSON"))
    line = json.loads(outcome.line)
    assert line["custom_id"] is None
    assert line["response"] is None
    assert line["error"] == {"code": "invalid_json", "message": "not JSON", "line": 9}
    assert outcome.failed


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_ends_completed_or_cancelled(state: JobState) -> None:
    assert state.ended == (state in {JobState.COMPLETED, JobState.CANCELLED})
