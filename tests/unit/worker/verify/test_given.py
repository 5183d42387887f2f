"""What was asked and what was answered, and which of it is chosen."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from producer.intake.digest import JobDigest
from producer.record.models import COMPLETIONS_URL, TARGET, Row
from worker.verify.comparable import Kind
from worker.verify.given import (
    Chooser,
    GivenError,
    Submitted,
    check_models,
    check_results,
    read_submitted,
    result_lines,
    rows_of,
)


def file(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def result(custom_id: str, *, error: bool = False, model: str = "m") -> str:
    response = {"status_code": 200, "body": {"model": model, "choices": [], "of": custom_id}}
    fault = {"code": "x", "message": "y", "line": 1}
    return json.dumps(
        {"custom_id": custom_id, "response": None if error else response, "error": fault if error else None}
    )


def chooser(submitted: Submitted, *lines: str, rows: int = 100, seed: int = 0) -> Chooser:
    made = Chooser(submitted, rows, seed)
    for line in lines:
        made.add(line)
    return made


def greedy(tmp_path: Path, count: int) -> Submitted:
    lines = [{"custom_id": f"r{n}", "prompt": "x", "temperature": 0} for n in range(count)]
    return read_submitted(file(tmp_path, *lines), 1.0)


def test_rows_are_named_as_submit_names_them(tmp_path: Path) -> None:
    path = file(
        tmp_path, {"prompt": "x", "temperature": 0}, "", {"messages": [{}], "seed": 1}, "{broken", {"prompt": "y"}
    )
    assert read_submitted(path, 1.0).kinds == {"row-1": Kind.GREEDY, "row-3": Kind.SEEDED, "row-5": Kind.FREE}


def test_kinds_follow_the_job_s_defaults_where_a_row_says_nothing_itself(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        {"custom_id": "quiet", "prompt": "x"},
        {"custom_id": "warm", "prompt": "x", "temperature": 0.7},
        {"custom_id": "null", "prompt": "x", "temperature": None},
        {"custom_id": "unseeded", "prompt": "x", "temperature": 0.7, "seed": None},
    )
    assert set(read_submitted(path, 1.0).kinds.values()) == {Kind.FREE}
    assert read_submitted(path, 1.0, {"temperature": 0, "seed": 3}).kinds == {
        "quiet": Kind.GREEDY,
        "warm": Kind.SEEDED,
        "null": Kind.SEEDED,
        "unseeded": Kind.FREE,
    }


def test_rows_come_with_the_job_s_defaults_beside_what_they_say(tmp_path: Path) -> None:
    path = file(
        tmp_path, {"custom_id": "a", "prompt": "x"}, {"custom_id": "b", "prompt": "y", "temperature": 0.5, "seed": 1}
    )
    submitted = read_submitted(path, 1.0, {"temperature": 0, "max_tokens": 5})
    rows = rows_of(path, submitted, chooser(submitted, result("a"), result("b")).chosen)
    assert [(given.kind, given.row.body) for given in rows] == [
        (Kind.GREEDY, {"prompt": "x", "temperature": 0, "max_tokens": 5}),
        (Kind.SEEDED, {"prompt": "y", "temperature": 0.5, "max_tokens": 5, "seed": 1}),
    ]


def identity(model: str, defaults: dict[str, Any], *rows: Row) -> str:
    """As `producer submit` makes it."""
    digest = JobDigest()
    for row in rows:
        digest.update(row.to_json().encode())
    return digest.hexdigest(model, defaults)


def test_a_job_is_known_by_its_rows_and_its_defaults(tmp_path: Path) -> None:
    path = file(tmp_path, {"custom_id": "a", "prompt": "x"})
    row = Row(0, 1, "a", COMPLETIONS_URL, {"prompt": "x"})
    defaults = {"temperature": 0, "max_tokens": 5}
    assert read_submitted(path, 1.0, defaults).is_job(identity("m", defaults, row), "m")
    assert read_submitted(path, 1.0, dict(reversed(defaults.items()))).is_job(identity("m", defaults, row), "m")
    assert not read_submitted(path, 1.0).is_job(identity("m", defaults, row), "m")
    assert not read_submitted(path, 1.0, defaults).is_job(identity("m", {}, row), "m")
    assert not read_submitted(path, 1.0).is_job(identity("m", {}, row, row), "m")


def test_a_job_for_any_model_is_known_when_it_was_bound_to_one(tmp_path: Path) -> None:
    submitted = read_submitted(file(tmp_path, {"custom_id": "a", "prompt": "x"}), 1.0, {"seed": 1})
    made = identity(TARGET, {"seed": 1}, Row(0, 1, "a", COMPLETIONS_URL, {"prompt": "x"}))
    assert submitted.is_job(made, TARGET)
    assert submitted.is_job(made, "m")
    assert not submitted.is_job(identity("other", {"seed": 1}), "m")


def test_only_what_can_be_compared_is_chosen_and_the_rest_is_counted(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        *({"custom_id": name, "prompt": "x", "temperature": 0} for name in "ab"),
        {"custom_id": "c", "prompt": "x"},
    )
    counted = chooser(read_submitted(path, 1.0), result("a"), result("b", error=True), result("c"), result("d"))
    assert (counted.answered, counted.failed, counted.free, counted.foreign, counted.comparable) == (3, 1, 1, 1, 1)
    assert counted.chosen.keys() == {"a"}


def test_the_same_rows_are_chosen_in_whatever_order_and_whoever_else_is_there(tmp_path: Path) -> None:
    submitted = greedy(tmp_path, 50)
    lines = [result(f"r{n}") for n in range(50)]
    first = chooser(submitted, *lines, rows=10).chosen
    assert len(first) == 10
    random.Random(1).shuffle(lines)
    assert chooser(submitted, *lines, rows=10).chosen == first
    fewer = [line for line in lines if json.loads(line)["custom_id"] in first or "r1" in line]
    assert chooser(submitted, *fewer, rows=10).chosen == first
    assert chooser(submitted, *lines, rows=10, seed=1).chosen != first


def test_every_row_is_chosen_equally_often(tmp_path: Path) -> None:
    submitted = greedy(tmp_path, 20)
    lines = [result(f"r{n}") for n in range(20)]
    times = dict.fromkeys(submitted.kinds, 0)
    for seed in range(400):
        for name in chooser(submitted, *lines, rows=5, seed=seed).chosen:
            times[name] += 1
    assert all(60 < count < 140 for count in times.values()), times  # 100 each in the mean, standard deviation 8.7


def test_rows_and_their_answers_come_together_in_the_file_s_order(tmp_path: Path) -> None:
    submitted = greedy(tmp_path, 3)
    counted = chooser(submitted, result("r2"), result("r0"))
    rows = rows_of(tmp_path / "rows.jsonl", submitted, counted.chosen)
    assert [(given.row.custom_id, given.row.line, given.answer["of"]) for given in rows] == [
        ("r0", 1, "r0"),
        ("r2", 3, "r2"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "1",
        "{}",
        '{"custom_id":"a","response":null,"error":null}',
        '{"custom_id":1,"response":{"status_code":200,"body":{"choices":[]}},"error":null}',
        "[" * 100_000,
    ],
)
def test_what_is_no_result_line_is_refused_in_one_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(GivenError, match="no line of a results file") as error:
        chooser(greedy(tmp_path, 1), line)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"text": "x"}]},
        {"choices": [{"index": 0}]},
        {"choices": [{"index": 0, "text": 1}]},
        {"choices": [{"index": 0, "text": "x"}, {"index": 0, "text": "y"}]},
        {"choices": [{"index": 0, "message": "x"}]},
        {"choices": [{"index": 0, "message": {"content": "x", "tool_calls": ["f"]}}]},
        {"choices": [{"index": 0, "text": "x", "token_ids": [[1]]}]},
        {"choices": [{"index": 0, "text": "x"}], "usage": 5},
        {"choices": "x"},
    ],
)
def test_what_is_no_answer_is_refused_too(body: dict[str, Any], tmp_path: Path) -> None:
    line = json.dumps({"custom_id": "r0", "response": {"status_code": 200, "body": body}, "error": None})
    with pytest.raises(GivenError, match="no line of a results file"):
        chooser(greedy(tmp_path, 1), line)


def test_two_answers_to_one_row_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GivenError, match="two answers to row 'r0'"):
        chooser(greedy(tmp_path, 1), result("r0"), result("r0"))


def test_a_response_that_is_an_error_counts_as_failed(tmp_path: Path) -> None:
    line = json.dumps({"custom_id": "r0", "response": {"status_code": 500, "body": {}}, "error": None})
    assert chooser(greedy(tmp_path, 1), line).failed == 1


def test_results_are_read_without_blank_lines_and_other_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"one\n\n  \ntwo\xe2\x80\xa8\n")
    assert [line.strip("\n") for line in result_lines(path)] == ["one", "two\u2028"]
    path.write_bytes(b"\xff\n")
    with pytest.raises(GivenError, match="cannot read"):
        list(result_lines(path))


def test_a_results_file_is_seen_to_be_one_whatever_was_submitted(tmp_path: Path) -> None:
    check_results(file(tmp_path, result("a"), result("b", error=True), result("c", model="n")))
    with pytest.raises(GivenError, match="no line of a results file"):
        check_results(file(tmp_path, result("a"), {"prompt": "x"}))
    with pytest.raises(GivenError, match="two answers to row 'a'"):
        check_results(file(tmp_path, result("a"), result("a")))


def test_another_model_s_answers_are_refused_by_its_name() -> None:
    check_models({"m"}, "m")
    with pytest.raises(GivenError, match=r"'other'.*'m'"):
        check_models({"m", "other"}, "m")
