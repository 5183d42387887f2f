"""What `worker verify` can be told."""

from pathlib import Path

import pytest

from producer.cli.common import Refused
from worker.settings import RunSettings, UsageError
from worker.verify.settings import plain_settings, read_settings, with_logits


@pytest.fixture(autouse=True)
def _nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in RunSettings.model_fields:
        monkeypatch.delenv(f"MINEDRAFT_{name.upper()}", raising=False)
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "answers.jsonl").touch()


GOOD = ("j", "--input", "rows.jsonl")


def test_a_worker_s_file_and_variables_are_good_here_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "minedraft.toml").write_text(
        'mode = "psd"\ndraft_model = "d"\ndrafter_cpus = "1"\nnum_speculative_tokens = 4\nmax_num_seqs = 3\n'
        'engine_args = "--max-model-len 64"\n'
    )
    monkeypatch.setenv("MINEDRAFT_MODEL", "m")
    settings = plain_settings(read_settings(GOOD))
    assert (settings.model, settings.max_num_seqs, settings.job) == ("m", 3, "j")
    assert (settings.mode, settings.draft_model, settings.drafter_cpus) == ("ar", None, None)
    assert settings.engine_args == "--max-model-len 64"


def test_logits_are_asked_for_before_the_user_s_own_flags_which_win() -> None:
    assert with_logits(read_settings(GOOD)).engine_args == "--logprobs-mode processed_logits"
    settings = read_settings([*GOOD, "--engine-args=--max-model-len 64"])
    assert with_logits(settings).engine_args == "--logprobs-mode processed_logits --max-model-len 64"


def test_the_fake_engine_is_told_nothing_that_it_does_not_know() -> None:
    assert with_logits(read_settings([*GOOD, "--engine", "fake"])).engine_args == ""


def test_what_a_results_file_s_rows_ask_for_is_told(tmp_path: Path) -> None:
    (tmp_path / "template.jinja").write_text("{{ messages }}")
    (tmp_path / "defaults.json").write_text('{"temperature": 0}')
    files = ("--results", "answers.jsonl", "--input", "rows.jsonl", "--defaults", "defaults.json")
    assert read_settings(files[:4]).job_defaults == {}
    assert read_settings(files).job_defaults == {"temperature": 0}
    asked = read_settings([*files, "--chat-template", "template.jinja", "--chat-template-kwargs", '{"a": 1}'])
    assert asked.job_defaults == {
        "temperature": 0,
        "chat_template": "{{ messages }}",
        "chat_template_kwargs": {"a": 1},
    }


def test_defaults_that_no_job_can_have_are_one_line() -> None:
    with pytest.raises(Refused, match="--defaults") as error:
        read_settings(["--results", "answers.jsonl", "--input", "rows.jsonl", "--defaults", '{"model": "m"}'])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "name the answers"),
        (["j", "--results", "answers.jsonl", "--input", "rows.jsonl"], "name the answers"),
        (["j"], "--input FILE is missing"),
        (["j", "--input", "nothing"], "--input: there is no file nothing"),
        (["--results", ".", "--input", "rows.jsonl"], "--results: there is no file ."),
        ([*GOOD, "--mode", "psd"], "--mode"),
        ([*GOOD, "--draft-model", "d"], "--draft-model"),
        ([*GOOD, "--rows", "0"], "--rows"),
        ([*GOOD, "--tie-gap", "-1"], "--tie-gap"),
        ([*GOOD, "--tie-gap", "inf"], "--tie-gap"),
        ([*GOOD, "another"], "another"),
        ([*GOOD, "--defaults", '{"temperature": 0}'], "--defaults and chat templates are for --results"),
        ([*GOOD, "--defaults", "{}"], "are for --results"),
        ([*GOOD, "--chat-template", "rows.jsonl"], "are for --results"),
        ([*GOOD, "--chat-template-kwargs", '{"a": 1}'], "are for --results"),
        (["--results", "answers.jsonl", "--input", "rows.jsonl", "--defaults", "nothing"], "cannot read nothing"),
        (["--results", "answers.jsonl", "--input", "rows.jsonl", "--chat-template", "none"], "cannot read none"),
    ],
)
def test_nonsense_is_one_line_that_names_it(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_settings(argv)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_help_names_what_plain_decoding_has_and_no_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for flag in ("--model", "--engine-args", "--input", "--results", "--rows", "--tie-gap", "--json", "JOB"):
        assert flag in said
    for flag in ("--mode", "--draft", "--metrics", "--drain", "--num-speculative"):
        assert flag not in said.replace("--model", "")
