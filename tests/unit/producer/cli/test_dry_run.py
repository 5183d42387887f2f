"""What `producer submit --dry-run` finds and tells."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from producer.cli.common import ExitCode
from producer.cli.dry_run import SHOWN, dry_run
from producer.intake.sources import open_source


@pytest.fixture
def dry(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs it over lines: the exit code, the object that was printed (None without --json), and what was said."""

    def run(*lines: object, **asked: Any) -> tuple[ExitCode, Any, str]:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        asked = {"defaults": {}, "on_duplicate": "refuse", "everything": False, "as_json": False, **asked}
        code = dry_run(open_source([str(path)]), **asked)
        out, err = capfd.readouterr()
        return code, json.loads(out) if out else None, err

    return run


GOOD = {"prompt": "four", "max_tokens": 3}


def test_a_good_file_is_summed_up(dry: Any) -> None:
    chat = {"messages": [{"role": "user", "content": "six ch"}, {"role": "user", "content": [{"text": "ab"}]}]}
    code, _, said = dry(GOOD, "", {"prompt": ["a", "b"]}, {"prompt": [5, 6, 7]}, chat)
    assert code == 0
    assert said.splitlines() == [
        "rows.jsonl: 4 rows",
        "rows.jsonl: 3 for /v1/completions, 1 for /v1/chat/completions; "
        "prompts of 14 characters and 3 token ids in all",
        "rows.jsonl: 3 have no max_tokens: an answer may fill the context",
    ]


def test_each_bad_line_is_told_with_its_place_and_counted_by_code(dry: Any) -> None:
    code, _, said = dry(GOOD, "", "{broken", {"prompt": "x", "temprature": 0})
    assert code == ExitCode.SOME_ROWS_FAILED
    first, second, sums, *_ = said.splitlines()
    assert first.startswith("rows.jsonl:3: invalid_json: the line is not JSON: ")
    assert second == (
        'rows.jsonl:4: unknown_parameter: /v1/completions has no parameter "temprature"; did you mean "temperature"?'
    )
    assert sums == "rows.jsonl: 3 rows, 2 of them refused: 1 invalid_json, 1 unknown_parameter"


def test_only_the_first_bad_lines_are_told_unless_all_are_asked_for(dry: Any) -> None:
    lines = [GOOD, *["{"] * (SHOWN + 5)]
    _, _, said = dry(*lines)
    assert said.count("invalid_json: the line") == SHOWN
    assert "\nand 5 more; --verbose tells all\n" in said
    _, _, said = dry(*lines, everything=True)
    assert said.count("invalid_json: the line") == SHOWN + 5
    assert "more" not in said


def test_duplicates_refuse_all_of_it_unless_they_may_be_error_rows(dry: Any) -> None:
    lines = [{"custom_id": "a", **GOOD}] * 3
    code, _, said = dry(*lines)
    assert code == ExitCode.USAGE
    assert "rows.jsonl:2: duplicate_custom_id: custom_id 'a' is on line 1 already\n" in said
    assert said.endswith(
        "2 rows have the custom_id of an earlier one; --on-duplicate error-row would submit the others\n"
    )
    code, _, said = dry(*lines, on_duplicate="error-row")
    assert code == ExitCode.SOME_ROWS_FAILED
    assert "would submit" not in said


@pytest.mark.parametrize(
    ("lines", "words"),
    [([], "there are no rows in it"), (["[", "]"], "none of its 2 rows can be used (this looks like")],
)
def test_what_holds_no_row_is_refused(dry: Any, lines: list[str], words: str) -> None:
    code, _, said = dry(*lines)
    assert code == ExitCode.USAGE
    assert f"producer: rows.jsonl: {words}" in said


def test_a_row_is_looked_at_with_its_jobs_defaults(dry: Any) -> None:
    defaults = {"tools": [], "max_tokens": 5}
    chat = {"messages": [{"role": "user", "content": "x"}]}
    code, found, _ = dry(chat, {"prompt": "x"}, defaults=defaults, as_json=True)
    assert code == ExitCode.SOME_ROWS_FAILED
    (error,) = found["errors"]
    assert (error["line"], error["code"]) == (2, "unknown_parameter")
    assert error["message"].startswith("by the job's defaults: ")
    assert found["without_max_tokens"] == 0


def test_the_object_for_programs(dry: Any) -> None:
    code, found, said = dry(GOOD, "{", {"prompt": "x", "n": 0}, as_json=True)
    assert (code, said) == (1, "")
    errors = found.pop("errors")
    assert [(error["file"], error["line"], error["code"]) for error in errors] == [
        ("rows.jsonl", 2, "invalid_json"),
        ("rows.jsonl", 3, "invalid_request"),
    ]
    assert found == {
        "rows": 3,
        "invalid": 2,
        "by_code": {"invalid_json": 1, "invalid_request": 1},
        "by_url": {"/v1/completions": 1},
        "by_parameter": {"prompt": 1, "max_tokens": 1},
        "without_max_tokens": 0,
        "prompt_characters": 4,
        "prompt_token_ids": 0,
        "refused": None,
    }
    assert dry("{", as_json=True)[1]["refused"].startswith("none of its 1 rows")


@pytest.mark.parametrize("as_json", [True, False])
def test_memory_does_not_grow_with_the_bad_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setattr("producer.cli.dry_run._IN_MEMORY", 1 << 16)

    def peak(rows: int) -> int:
        path = tmp_path / "rows.jsonl"
        path.write_text("{\n" * rows)
        tracemalloc.start()
        dry_run(open_source([str(path)]), defaults={}, on_duplicate="refuse", everything=True, as_json=as_json)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        out, err = capfd.readouterr()
        assert (len(json.loads(out)["errors"]) if as_json else err.count("invalid_json: the line")) == rows
        return most

    assert peak(6000) < peak(3000) + 300_000
