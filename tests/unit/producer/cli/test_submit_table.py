"""The producer's table in minedraft.toml."""

from pathlib import Path

import pytest

from producer.cli.common import Refused
from producer.cli.submit_table import SubmitTable, submit_table


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_a_file_or_a_table_nothing_is_asked_for() -> None:
    assert submit_table(None) == SubmitTable()
    Path("minedraft.toml").write_text('mode = "sd"\nmax_num_seqs = 3\n')
    assert submit_table(None) == SubmitTable()


def test_options_and_what_rows_ask_for_are_told_apart() -> None:
    folder = Path("conf")
    folder.mkdir()
    (folder / "t.jinja").write_text("{{ messages }}")
    (folder / "a.toml").write_text(
        'mode = "sd"\n[submit]\nmodel = "m"\npriority = 3\nmax_error_rate = 1\nttl = "7d"\non_duplicate = "error-row"\n'
        'dedupe = true\ntruncate_prompts = 100\nchat_template = "t.jinja"\nchat_template_kwargs = { think = false }\n'
        "[submit.defaults]\ntemperature = 0\nstop = ['\\n']\n"
    )
    table = submit_table(folder / "a.toml")
    assert table.options == {
        "model": "m",
        "priority": 3,
        "max_error_rate": 1,
        "ttl": "7d",
        "on_duplicate": "error-row",
        "dedupe": True,
    }
    assert table.defaults == {
        "temperature": 0,
        "stop": ["\\n"],
        "chat_template": "{{ messages }}",
        "chat_template_kwargs": {"think": False},
        "truncate_prompt_tokens": 100,
        "truncation_side": "left",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("submit = 3", "submit must be a table"),
        ("[submit]\nprioriti = 3", 'has no setting "prioriti"; did you mean "priority"'),
        ("[submit]\nmax-error-rate = 0.5", 'no setting "max-error-rate"; in TOML it is max_error_rate'),
        ("[submit]\npriority = true", "priority in .submit. must be a whole number"),
        ("[submit]\nmax_error_rate = '1'", "max_error_rate in .submit. must be a number"),
        ("[submit]\nchat_template = 'missing.jinja'", "missing.jinja"),
        ("[submit.defaults]\ntemprature = 1", r'.submit.defaults.: rows have no parameter "temprature"; did you mean'),
        ("[submit.defaults]\nseed = 2020-01-01", "it holds a date or a time"),
        ("[submit.defaults]\ntemperature = nan", "it holds NaN"),
        ("[submit]\ntruncate_prompts = 0", "0 tokens"),
        ("[submit", "is not TOML"),
    ],
)
def test_what_is_no_such_table_is_refused_by_name(text: str, words: str) -> None:
    Path("minedraft.toml").write_text(text)
    with pytest.raises((Refused, OSError), match=words) as refused:
        submit_table(None)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_named_must_be_there() -> None:
    with pytest.raises(Refused, match=r"--config: there is no file nothing\.toml"):
        submit_table(Path("nothing.toml"))
