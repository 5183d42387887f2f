"""The command on results files, with engines that have no model; `test_verify.py` has jobs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer.record.models import COMPLETIONS_URL, Row
from worker.engine.fake import FakeEngine, FakePlan, fake_answer
from worker.settings import RunSettings
from worker.verify import command
from worker.verify.model import ModelFacts

FILES = ("--results", "answers.jsonl", "--input", "rows.jsonl", "--json", "--served-model-name", "m")
FAKE = (*FILES, "--engine", "fake")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in RunSettings.model_fields:
        monkeypatch.delenv(f"MINEDRAFT_{name.upper()}", raising=False)


def write(defaults: dict[str, Any], *rows: dict[str, Any]) -> None:
    """The files of a job that was submitted with defaults, and answered."""
    answers = [
        fake_answer(Row(n, n + 1, f"r{n}", COMPLETIONS_URL, {**defaults, **row}), "m", 16) for n, row in enumerate(rows)
    ]
    submitted = [{"custom_id": f"r{n}", **row} for n, row in enumerate(rows)]
    results = [
        {"custom_id": f"r{n}", "response": {"status_code": 200, "body": answer.body}, "error": None}
        for n, answer in enumerate(answers)
    ]
    for name, lines in (("rows.jsonl", submitted), ("answers.jsonl", results)):
        Path(name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_results_file_is_checked_with_its_job_s_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    write({"temperature": 0, "max_tokens": 5}, {"prompt": "x"}, {"prompt": "y", "max_tokens": 3})
    assert command.run([*FAKE, "--defaults", '{"temperature": 0, "max_tokens": 5}']) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["identical"] == 2
    assert command.run([*FAKE, "--defaults", '{"temperature": 0, "max_tokens": 4}']) == 1
    assert [one["custom_id"] for one in json.loads(capsys.readouterr().out)["apart"]] == ["r0"]
    assert command.run(FAKE) == 2
    assert "all sampled without a seed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"), [((), "no line of a results file"), (("--defaults", "nothing.json"), "cannot read nothing.json")]
)
def test_a_file_at_fault_is_told_in_one_line_before_the_model_is_looked_at(
    more: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def facts(_: RunSettings) -> ModelFacts:
        raise AssertionError("vLLM would be imported")

    monkeypatch.setattr(command, "facts", facts)
    write({}, {"prompt": "x", "temperature": 0})
    Path("answers.jsonl").write_text("{}\n")
    assert command.run([*FAKE, *more]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_beam_search_has_an_engine_that_tells_what_the_workers_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []
    asked: list[list[str]] = []

    class Listening(FakeEngine):
        async def answer(self, row: Row, job: str = "") -> Any:
            asked[-1].append(row.custom_id)
            return await super().answer(row, job)

    def factory(settings: RunSettings) -> Callable[[], FakeEngine]:
        made.append(settings.engine_args)
        asked.append([])
        return lambda: Listening(FakePlan(), "m", 1)

    monkeypatch.setattr(command, "facts", lambda _: ModelFacts("m", "float32", 1.0, lambda _ids, _special: ""))
    monkeypatch.setattr(command, "engine_factory", factory)
    beam = {"use_beam_search": True, "temperature": 0.7, "n": 2}
    write({}, {"prompt": "a", **beam}, {"prompt": "b", "temperature": 0}, {"prompt": "c", **beam})
    Path("answers.jsonl").write_text(Path("answers.jsonl").read_text().replace('"length"', '"stop"'))
    assert command.run([*FILES, "--engine-args=--max-model-len 64"]) == 1
    assert made == ["--logprobs-mode processed_logits --max-model-len 64", "--max-model-len 64"]
    assert [sorted(set(names)) for names in asked] == [["r1"], ["r0", "r2"]]
    found = json.loads(capsys.readouterr().out)
    assert [(one["custom_id"], one["kind"]) for one in found["apart"]] == [
        ("r0", "beam"),
        ("r1", "greedy"),
        ("r2", "beam"),
    ]
