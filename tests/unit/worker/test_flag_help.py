"""`worker run --help` is for people."""

import re

import pytest

from worker.settings import RunSettings, read_settings


@pytest.fixture
def help_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit):
        read_settings(["--help"])
    return capsys.readouterr().out


def test_each_flag_says_what_it_is(help_text: str) -> None:
    said = dict(re.findall(r"^  --([\w-]+).*?\s{2,}(\S.*)$", help_text, re.MULTILINE))
    assert said.keys() == {name.replace("_", "-") for name in RunSettings.model_fields}
    assert min(map(len, said.values())) > 10


def test_placeholders_and_defaults_are_a_user_s_words(help_text: str) -> None:
    assert "--max-num-seqs N " in help_text
    assert "--config FILE " in help_text
    assert "(default: psd)" in help_text
    assert "None" not in help_text
    assert "(default: )" not in help_text
