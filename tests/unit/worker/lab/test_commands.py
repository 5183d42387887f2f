"""`worker bench`, `worker trace` and `worker plan` as typed, as far as no engine is needed."""

import json
from pathlib import Path

import pytest

from worker import plan_file
from worker.lab import bench_cli, grid, plan_cli, report, trace_cli
from worker.lab.bench import BenchError
from worker.lab.predict import Workload
from worker.lab.result import Bench, Result, Scenario, Turn


def measured(tmp_path: Path) -> Path:
    def turn(rate: float, step: float, verify: float, draft: float | None) -> Turn:
        return Turn(1, 1, rate, rate, 10, verify, draft, step, acceptance_at=(0.7, 0.7) if draft else ())

    results = (
        Result(Scenario("ar", "ar", 8, 0, 1), (turn(8 / 0.055, 55, 50, None),)),
        Result(Scenario("sd(m)", "sd", 4, 2, 1), (turn(4 * 2.19 / 0.115, 115, 60, 50),)),
        Result(Scenario("psd(2m)", "psd", 8, 2, 2), (turn(4 * 2.19 / 0.061, 61, 60, 50),)),
    )
    path = tmp_path / "bench.json"
    path.write_text(report.to_json(Bench("a pair", False, 8, 16, True, "", results, "here")))
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pair", "nothing"], "names no pair"),
        (["--virtual", "qwen"], "no profile 'qwen'; there are: qwen3-32b+0.6b"),
        (["--virtual", "flat:25"], "is not flat:V,t"),
        (["--model", "/x"], "--model and --draft-model go together"),
        (["--virtual", "flat:25,10", "--categories", "poetry"], "no category 'poetry'"),
        (["--virtual", "flat:25,10", "--prompts", "/nowhere.jsonl"], "/nowhere.jsonl: there is no such file"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_cli.run(arguments) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("worker bench: ")
    assert message in said


@pytest.mark.parametrize(
    "arguments", [["-m", "0"], ["-m", "x"], ["--turns", "-1"], ["--scenarios", "sd(3m)"], ["--drafter-cpus", "a"]]
)
def test_impossible_flags_are_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_cli.run(arguments)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


NO_LENGTHS = ["0", "0..5", "9..8", "4..", "..4", "..", "four", "4..x", "1..2..3", "-1..4", "4-9", ""]
TOO_LONG = ["1000000001", "4..99999999999999999999"]


@pytest.mark.parametrize("flag", ["--tokens", "--prompt-chars"])
@pytest.mark.parametrize(
    ("text", "why"),
    [(text, "neither a number above 0 nor a range of such, as 4..512") for text in NO_LENGTHS]
    + [(text, "more than 1,000,000,000") for text in TOO_LONG],
)
def test_impossible_lengths_are_usage_errors_of_one_line(
    flag: str, text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_cli.run([f"{flag}={text}"])
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"worker bench: error: argument {flag}: {text!r} is {why}"


@pytest.mark.parametrize(("text", "lengths"), [("64", range(64, 65)), ("4..512", range(4, 513)), ("7..7", range(7, 8))])
def test_lengths_are_a_number_or_a_range(text: str, lengths: range) -> None:
    asked = bench_cli.parser().parse_args(["--tokens", text, "--prompt-chars", text])
    assert asked.tokens == asked.prompt_chars == lengths


def test_lengths_unless_told() -> None:
    asked = bench_cli.parser().parse_args([])
    assert (asked.tokens, asked.prompt_chars) == (range(64, 65), range(600, 601))


def test_the_drafts_of_mixed_lengths_are_those_of_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []

    def plan(*_: object, workload: Workload, **__: object) -> object:
        planned.append(workload.output_tokens)
        raise BenchError

    monkeypatch.setattr(bench_cli, "plan", plan)
    arguments = ["--virtual", "qwen3-32b+4b", "-m", "2", "--rows", "9", "--tokens", "4..512"]
    assert bench_cli.run(arguments) == 2
    assert planned == [258]


def test_rows_too_long_for_the_context_are_refused_before_an_engine_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINEDRAFT_CACHE_DIR", str(tmp_path))
    assert bench_cli.run(["--virtual", "flat:25,10", "--tokens", "2000", "--scenarios", "ar"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("worker bench: row ")
    assert "are more than a context of 2,048" in said


def test_plan_from_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_cli.run(["--virtual", "qwen3-32b+1.7b", "--devices", "10"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("virtual: ")
    assert "psd(2m)" in said
    assert "virtual: 10 devices" in said
    assert "do not pay" in said


def test_a_plan_is_left_for_a_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.toml"
    assert plan_cli.run(["--virtual", "qwen3-32b+1.7b", "--save", str(file)]) == 0
    fastest = plan_file.read(file)
    assert (fastest.mode, fastest.tensor_parallel_size, fastest.num_speculative_tokens) == ("sd", 5, 1)
    assert plan_cli.run(["--virtual", "qwen3-32b+1.7b", "--devices", "4", "--save", str(file)]) == 0
    assert plan_file.read(file).tensor_parallel_size == 4
    capsys.readouterr()
    assert plan_cli.run(["--virtual", "qwen3-32b+1.7b", "--devices", "3", "--save", str(file)]) == 2
    assert capsys.readouterr().err == "worker plan: nothing that was planned fits on 3 devices\n"
    assert plan_cli.run(["--virtual", "qwen3-32b+1.7b", "--save", str(tmp_path / "no" / "plan.toml")]) == 2


def test_the_grid_is_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(grid, "cells", lambda: [grid.Cell("flat", 0.95, 0.3, 2, 64)])
    assert plan_cli.run(["--grid"]) == 0
    assert "auto on the grid" in capsys.readouterr().out


def test_plan_from_a_bench_and_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(measured(tmp_path))
    assert plan_cli.run(["--bench", path, "-k", "2"]) == 0
    assert "psd(2m)" in capsys.readouterr().out
    assert plan_cli.run(["--bench", path, "--check"]) == 0
    worst = capsys.readouterr().out.splitlines()[-1].split()
    assert worst[0] == "worst"
    assert abs(float(worst[1].rstrip("%"))) < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--virtual", "gpu"], "no profile 'gpu'"),
        (["--virtual", "flat:25,10", "--check"], "--check needs --bench"),
        (["--bench", "/nowhere.json"], "No such file"),
        (["--bench", __file__], "worker plan: "),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_cli.run(arguments) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert message in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to leave"),
        (["--png", "/tmp/x.png", "--steps", "0"], "--steps from 1"),
        (["--png", "/tmp/x.png", "--load", __file__], "is no file of stage records"),
        (["--png", "/tmp/x.png", "--load", "/nowhere.npz"], "No such file"),
        (["--png", "/tmp/x.png", "--engine", "/nowhere"], "is no engine's folder"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trace_cli.run(arguments) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("worker trace: ")
    assert message in said


def test_a_saved_trace_is_drawn_again_and_still_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from timelines import two_batches

    from worker.lab import follow

    saved, drawn = tmp_path / "saved.npz", tmp_path / "trace.json"
    follow.save(saved, two_batches(), {"title": "imagined", "virtual": True})
    assert trace_cli.run(["--load", str(saved), "--json", str(drawn)]) == 0
    assert capsys.readouterr().out == f"{drawn}\n"
    assert json.loads(drawn.read_text())["otherData"]["virtual"]
