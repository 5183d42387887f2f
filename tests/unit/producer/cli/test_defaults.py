"""From the options of `producer submit` to what a job's rows ask for."""

from pathlib import Path

import pytest

from producer.cli.common import Refused
from producer.cli.defaults import job_defaults
from producer.intake.defaults import MAX_CHARACTERS


def test_without_options_nothing_is_asked_for() -> None:
    assert job_defaults(None, None, None) == {}


def test_json_may_be_in_a_file_and_a_template_is_a_default_like_others(tmp_path: Path) -> None:
    (tmp_path / "defaults.json").write_text('\n{"temperature": 0}\n')
    (tmp_path / "template.jinja").write_text("{{ messages[0].content }}é\n", encoding="utf-8")
    asked = job_defaults(str(tmp_path / "defaults.json"), tmp_path / "template.jinja", ' {"model": "any name"}')
    assert asked == {
        "temperature": 0,
        "chat_template": "{{ messages[0].content }}é\n",
        "chat_template_kwargs": {"model": "any name"},
    }


@pytest.mark.parametrize(
    ("defaults", "arguments", "words"),
    [
        ("{oops}", None, "--defaults: it is not JSON"),
        ('{"model": "m"}', None, '--defaults: "model" cannot be a default: --model'),
        ('{"temprature": 1}', None, '--defaults: rows have no parameter "temprature"; did you mean "temperature"?'),
        ('{"temperature": "hot"}', None, '--defaults: "temperature" must be a number from 0 to 2, not "hot"'),
        (None, "{oops}", "--chat-template-kwargs: it is not JSON"),
        ('{"chat_template_kwargs": {}}', "{}", '--defaults has "chat_template_kwargs" already'),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_the_options_name(
    defaults: str | None, arguments: str | None, words: str
) -> None:
    with pytest.raises(Refused, match=words) as refused:
        job_defaults(defaults, None, arguments)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_template_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match="not UTF-8"):
        job_defaults(None, tmp_path / "binary", None)
    with pytest.raises(OSError, match="nothing"):
        job_defaults(None, tmp_path / "nothing", None)


def test_all_options_together_are_limited(tmp_path: Path) -> None:
    third = "x" * (MAX_CHARACTERS // 3 - 40)
    (tmp_path / "template").write_text(third)
    (tmp_path / "defaults").write_text(f'{{"user": "{third}"}}')
    fits = (str(tmp_path / "defaults"), tmp_path / "template", f'{{"a": "{third}"}}')
    assert len(job_defaults(*fits)) == 3
    (tmp_path / "template").write_text(third + "x" * 120)
    with pytest.raises(Refused, match="the defaults of all rows: they have "):
        job_defaults(*fits)


def test_settings_win_over_defaults_and_these_over_what_is_under_them(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text('temperature = 0.5\nseed = 1\nstop = ["a"]\n')
    under = {"temperature": 1, "top_p": 0.5}
    settings = ["seed=2", "user=a=b", 'response_format={"type": "text"}', 'stop="3"', "ignore_eos=true"]
    assert job_defaults(str(tmp_path / "d.toml"), settings=settings, under=under) == {
        "temperature": 0.5,
        "top_p": 0.5,
        "seed": 2,
        "user": "a=b",
        "response_format": {"type": "text"},
        "stop": "3",
        "ignore_eos": True,
    }


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("temperature", "'temperature' is not NAME=VALUE"),
        ("=1", "'=1' is not NAME=VALUE"),
        ("maxtokens=1", '--set: rows have no parameter "maxtokens"; did you mean "max_tokens"?'),
        ("temperature=hot", '--set: "temperature" must be'),
        ("model=m", '--set: "model" cannot be a default'),
        ("temperature=", '--set: "temperature" must be'),
        ("temperature=NaN", "--set temperature: the value holds NaN"),
        ("temperature=-Infinity", "--set temperature: the value holds -Infinity"),
        ("temperature=1e400", "--set temperature: the value holds a number too large"),
        ("seed=9223372036854775808", "--set seed: the value holds an integer that does not fit"),
        ('stop=["a"', "--set stop: the value is not JSON"),
        ('stop="\\ud800"', "--set stop: the value holds half of a surrogate pair"),
        ("logit_bias={1: 2}", "--set logit_bias: the value is not JSON"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(setting: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        job_defaults(settings=[setting])
    assert words in str(refused.value)


def test_prompts_are_cut_at_their_beginning_unless_told_otherwise() -> None:
    assert job_defaults(truncate=9) == {"truncate_prompt_tokens": 9, "truncation_side": "left"}
    right = job_defaults('{"truncation_side": "right"}', truncate=9)
    assert right == {"truncate_prompt_tokens": 9, "truncation_side": "right"}
    with pytest.raises(Refused, match="--truncate-prompts: 0 tokens"):
        job_defaults(truncate=0)
    with pytest.raises(Refused, match=r"has .truncate_prompt_tokens. already"):
        job_defaults('{"truncate_prompt_tokens": 3}', truncate=9)


def test_a_toml_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text("temperature = \n")
    with pytest.raises(Refused, match=r"--defaults: .*d.toml is not TOML"):
        job_defaults(str(tmp_path / "d.toml"))
