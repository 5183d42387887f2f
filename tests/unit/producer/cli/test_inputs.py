"""The options of `producer submit` that say where rows come from."""

from pathlib import Path
from typing import Any

import pytest

from producer.cli.common import Refused
from producer.cli.inputs import chosen_source
from producer.intake.lines import Line

NOTHING: dict[str, Any] = dict.fromkeys(("prompt_column", "template", "messages_column", "id_column")) | {"chat": False}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("text,name\nhi,x\n")
    Path("a.jsonl").write_text('{"prompt":"hi"}\n')


def data(*files: str, **options: Any) -> list[bytes]:
    return [line.data for line in chosen_source(files, **{**NOTHING, **options}).lines() if isinstance(line, Line)]


def test_json_lines_need_no_option() -> None:
    assert data("a.jsonl") == [b'{"prompt":"hi"}']


def test_every_option_reaches_the_table() -> None:
    assert data("a.csv", prompt_column="text", id_column="name") == [b'{"custom_id":"x","prompt":"hi"}']
    assert data("a.csv", template="{text}!") == [b'{"prompt":"hi!"}']
    assert data("a.csv", prompt_column="text", chat=True) == [b'{"messages":[{"role":"user","content":"hi"}]}']
    Path("a.csv").write_text('talk\n"[{""role"":""user"",""content"":""hi""}]"\n')
    assert data("a.csv", messages_column="talk") == [b'{"messages":[{"role":"user","content":"hi"}]}']


def test_a_template_in_a_file_loses_its_last_newline() -> None:
    Path("template.txt").write_text("Say:\n{text}\n\n")
    assert data("a.csv", template="template.txt") == [b'{"prompt":"Say:\\nhi\\n"}']


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"template": "nosuch.txt"}, "--template: 'nosuch.txt' has no {column} in it, and there is no such file"),
        ({"template": "."}, "there is no such file"),
        ({"template": "latin.txt"}, "--template: 'latin.txt' is not UTF-8"),
        (
            {"template": "{text}", "prompt_column": "text"},
            "give one of --prompt-column, --messages-column or --template",
        ),
        ({"template": "{txt}"}, 'a.csv: there is no column "txt" (did you mean "text"?); it has "text", "name"'),
        ({}, 'a.csv: there is no column "prompt": choose with --prompt-column, --messages-column or --template'),
    ],
)
def test_what_is_wrong_is_one_line(options: dict[str, Any], words: str) -> None:
    Path("latin.txt").write_bytes(b"{text}\xff"[6:])
    with pytest.raises(Refused) as refused:
        data("a.csv", **options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "option", [{"prompt_column": "prompt"}, {"template": "{prompt}"}, {"id_column": "x"}, {"chat": True}]
)
def test_options_of_tables_are_refused_for_json_lines(option: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=r"a\.jsonl: it is read as JSON lines: columns and templates are for"):
        data("a.jsonl", **option)
