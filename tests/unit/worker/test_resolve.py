"""What a worker does with its settings, and what it refuses before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from worker import plan_file
from worker.engines import vllm_options
from worker.facts import vllm_facts
from worker.plan_file import PlannedPlacement
from worker.resolve import Resolved, resolve, strategy
from worker.settings import RunSettings, UsageError, read_settings
from worker.strategies.seam import Strategy


@pytest.fixture(autouse=True)
def _on_a_cpu_and_nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("worker.resolve.platform.is_cpu_build", lambda: True)
    for name in RunSettings.model_fields:
        monkeypatch.delenv(f"MINEDRAFT_{name.upper()}", raising=False)


def resolved(text: str) -> Resolved:
    return resolve(read_settings(text.split()))


@pytest.mark.parametrize(
    ("argv", "mode", "drafts"),
    [
        ("", "psd", 1),
        ("--mode pearl", "pearl", 2),
        ("--mode auto", "auto", 5),
        ("--mode auto --num-speculative-tokens 3", "auto", 3),
        ("--mode sd", "sd", 1),
        ("--mode ar", "ar", 1),
    ],
)
def test_how_many_tokens_are_drafted_unless_somebody_says(argv: str, mode: str, drafts: int) -> None:
    done = resolved(argv)
    assert (done.settings.mode, done.settings.num_speculative_tokens) == (mode, drafts)
    assert done.said == ()


def test_flags_make_a_strategy_of_the_two_batch_engine() -> None:
    flags = "--mode auto --draft-source mixed --draft-length adaptive --verify tetris --extra-drafts 2"
    settings = resolved(f"{flags} --model m --draft-model d").settings
    assert strategy(settings) == Strategy("auto", "mixed", "adaptive", "tetris", 2)
    options = vllm_options(settings)
    assert (options.mode, options.num_speculative_tokens) == ("psd", 5)
    assert options.strategy == strategy(settings)
    noted = vllm_facts(options)
    assert (noted.mode, noted.strategy) == ("auto", flags.removeprefix("--mode auto "))
    plain = vllm_facts(vllm_options(resolved("--model m --draft-model d").settings))
    assert (plain.mode, plain.strategy) == ("psd", "")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("--mode ar --draft-source suffix", "--draft-source is of the modes psd, pearl, auto, not of ar"),
        ("--mode sd --verify confidence", "--verify is of the modes psd, pearl, auto, not of sd"),
        ("--mode ar --extra-drafts 1", "--extra-drafts is of the modes"),
        ("--verify tetris --num-speculative-tokens 3", "--extra-drafts 1 or more"),
        ("--verify tetris --extra-drafts 3 --num-speculative-tokens 3", "--num-speculative-tokens 4 or more"),
        ("--extra-drafts 1 --num-speculative-tokens 3", "--extra-drafts goes with --verify tetris"),
        ("--mode pearl --num-speculative-tokens 1", "--num-speculative-tokens 2 or more"),
        ("--mode pearl --draft-source ngram", "--mode pearl drafts ahead"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(argv: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        resolved(argv)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("argv", ["--mode pearl", "--verify confidence"])
def test_what_does_not_go_on_gpus_is_refused_there(argv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.resolve.platform.is_cpu_build", lambda: False)
    with pytest.raises(UsageError, match="runner only, that of CPUs"):
        resolved(argv)
    assert resolved("--mode auto --draft-source mixed --draft-length adaptive").said == ()


def test_auto_without_a_draft_model_is_plain_decoding_and_says_so() -> None:
    done = resolved("--mode auto --model m")
    assert done.settings.mode == "ar"
    why = "mode ar: there is no draft model for auto to choose anything else (--draft-model)"
    assert done.said == (why,)
    done = resolved("--mode auto --model m --draft-source suffix --verify tetris --extra-drafts 1")
    assert (done.settings.draft_source, done.settings.verify, done.settings.extra_drafts) == ("model", "all", 0)
    assert done.said == (why, "mode ar: --draft-source, --verify, --extra-drafts without effect")


@pytest.mark.parametrize(
    ("argv", "done", "said"),
    [
        ("", ("auto", 4, 5), ["mode auto, tensor_parallel_size 4, num_speculative_tokens 5"]),
        (
            "--mode psd --num-speculative-tokens 5",
            ("psd", 4, 5),
            ["tensor_parallel_size 4", "mode auto was planned, psd was asked for"],
        ),
    ],
)
def test_a_plan_says_what_nobody_else_does(argv: str, done: Any, said: list[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    plan_file.write(path, PlannedPlacement("auto", 4, 5, "because"))
    found = resolved(f"--plan {path} {argv}")
    settings = found.settings
    assert (settings.mode, settings.tensor_parallel_size, settings.num_speculative_tokens) == done
    assert found.said == tuple(f"plan {path}: {line}" for line in said)


def test_a_plan_of_plain_decoding_asks_for_no_drafts(tmp_path: Path) -> None:
    plan_file.write(tmp_path / "plan.toml", PlannedPlacement("ar", 2))
    settings = resolved("--plan plan.toml").settings
    assert (settings.mode, settings.tensor_parallel_size) == ("ar", 2)


@pytest.mark.parametrize(
    ("text", "said"), [(None, "cannot read"), ("mode =", "is not TOML"), ("mode = 'x'", "mode is")]
)
def test_what_is_no_plan_is_refused(text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(UsageError, match=f"--plan: .*{said}"):
        resolved("--plan plan.toml")


def test_a_worker_that_cannot_be_is_told_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    from worker.run import run

    assert run(["--mode", "ar", "--draft-length", "adaptive", "--redis", "redis://127.0.0.1:1"]) == 2
    assert capsys.readouterr().err == "worker: --draft-length is of the modes psd, pearl, auto, not of ar\n"
