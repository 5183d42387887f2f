"""Which columns become what; the files here are the shortest way to say a table."""

from typing import Any

import pytest

from producer.intake.lines import MAX_LINE_BYTES, Line, TooLong
from producer.intake.refused import SourceError
from producer.intake.rows import Reject, parse_line
from producer.intake.tables import Column, Form, Recipe, Table
from producer.record.models import CHAT_URL, COMPLETIONS_URL, Row

ALL = (
    Column("prompt"),
    Column("text"),
    Column("n", Form.VALUE, "int64"),
    Column("ids", Form.TOKENS, "list<int64>"),
    Column("talk", Form.MESSAGES, "list<struct>"),
    Column("image", Form.OTHER, "binary"),
    Column("twice"),
    Column("twice"),
)


def row(table: Table, columns: tuple[Column, ...] = ALL, **values: Any) -> Row | Reject:
    """What row 7 with these values becomes."""
    recipe = Recipe(table, columns, "t")
    line = recipe.line(7, [values.get(columns[place].name) for place in recipe.columns], "")
    return parse_line(line, 0)


def refusal(columns: tuple[Column, ...] = ALL, **table: Any) -> str:
    with pytest.raises(SourceError) as refused:
        Recipe(Table(**table), columns, "t")
    assert "\n" not in str(refused.value)
    return str(refused.value)


class TestWhatIsAsked:
    def test_by_default_the_column_prompt(self) -> None:
        found = row(Table(), prompt="hi", n=3)
        assert found == Row(0, 7, "row-7", COMPLETIONS_URL, {"prompt": "hi"})

    def test_by_default_the_column_messages_where_there_is_no_prompt(self) -> None:
        messages = [{"role": "user", "content": "hi"}]
        found = row(Table(), (Column("messages", Form.MESSAGES), Column("n", Form.VALUE)), messages=messages)
        assert found == Row(0, 7, "row-7", CHAT_URL, {"messages": messages})

    def test_another_column(self) -> None:
        assert row(Table(prompt_column="text"), text="hi").body == {"prompt": "hi"}
        assert row(Table(prompt_column="ids"), ids=[1, 2]).body == {"prompt": [1, 2]}

    def test_a_chat_of_one_message(self) -> None:
        found = row(Table(chat=True), prompt="hi")
        assert found == Row(0, 7, "row-7", CHAT_URL, {"messages": [{"role": "user", "content": "hi"}]})
        assert row(Table(template="{n}?", chat=True), n=3).body["messages"][0]["content"] == "3?"

    def test_messages_lose_the_members_that_only_other_messages_have(self) -> None:
        talk = [{"role": "user", "content": [{"type": "text", "text": "hi", "image": None}], "name": None}]
        assert row(Table(messages_column="talk"), talk=talk).body == {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
        }

    def test_messages_in_a_text(self) -> None:
        table = Table(messages_column="text")
        assert row(table, text='[{"role":"user","content":"hi"}]').url == CHAT_URL
        for text, code in (("[{]", "invalid_json"), ("NaN", "invalid_number"), ('[{"a":1,"a":1}]', "duplicate_key")):
            found = row(table, text=text)
            assert (found.fault.code, found.fault.message[:18]) == (code, 'in column "text": ')
        assert row(table, text="7").fault.code == "invalid_messages"
        assert row(table).fault.code == "missing_messages"


class TestTemplates:
    @pytest.mark.parametrize(
        ("template", "prompt"),
        [
            ("Say: {text}", "Say: a{b}"),
            ("{text}{text} {n}", "a{b}a{b} 3"),
            ('{{"x": {n}}}', '{"x": 3}'),
            ("{{ {text} }}", "{ a{b} }"),
            ("\n{n}\u2028", "\n3\u2028"),
        ],
    )
    def test_values_take_the_places_of_names(self, template: str, prompt: str) -> None:
        assert row(Table(template=template), text="a{b}", n=3).body == {"prompt": prompt}

    @pytest.mark.parametrize(
        ("value", "text"),
        [(True, "true"), (False, "false"), (1.5, "1.5"), (-0.0, "-0.0"), (1e30, "1e+30"), (2**70, str(2**70))],
    )
    def test_how_values_are_spelled(self, value: object, text: str) -> None:
        assert row(Table(template="{n}"), n=value).body == {"prompt": text}

    def test_a_column_is_read_once(self) -> None:
        assert Recipe(Table(template="{n}{text}{n}"), ALL, "t").columns == [2, 1]

    def test_a_column_with_any_name(self) -> None:
        column = (Column("my text.0[x]"),)
        assert row(Table(template="{my text.0[x]}"), column, **{"my text.0[x]": "hi"}).body == {"prompt": "hi"}

    @pytest.mark.parametrize("value", [None, float("nan")])
    def test_a_missing_value_is_a_row_error(self, value: object) -> None:
        found = row(Table(template="{text}{n}"), text="hi", n=value)
        assert (found.fault.code, found.fault.message) == ("missing_prompt", 'the row has no value in column "n"')

    @pytest.mark.parametrize(
        ("template", "words"),
        [
            ("{{ text }}", "it names no column: write {column}, with one brace on each side"),
            ("text", "it names no column"),
            ("", "it names no column"),
            ("{", "(a brace itself is written twice)"),
            ("{text} }", "(a brace itself is written twice)"),
            ("{text}{}", "the name of a column and nothing else"),
            ("{n:03}", "the name of a column and nothing else"),
            ("{text!r}", "the name of a column and nothing else"),
            ("{txt}", 'there is no column "txt" (did you mean "text"?); it has "prompt", "text"'),
            ("{ text }", 'there is no column " text "'),
            ("{image}", 'column "image" (binary) cannot be used in a template'),
            ("{talk}", 'column "talk" (list<struct>) cannot be used in a template'),
            ("{twice}", '2 columns are called "twice": rename all but one'),
        ],
    )
    def test_refused(self, template: str, words: str) -> None:
        assert words in refusal(template=template)


class TestNames:
    def test_by_default_the_column_custom_id(self) -> None:
        columns = (Column("prompt"), Column("custom_id"))
        assert row(Table(), columns, prompt="hi", custom_id="a").custom_id == "a"
        assert row(Table(), columns, prompt="hi").custom_id == "row-7"
        assert row(Table(), columns, prompt=None, custom_id="a").custom_id == "a"

    def test_another_column_and_numbers(self) -> None:
        assert row(Table(id_column="n"), prompt="hi", n=12).custom_id == "12"
        assert row(Table(id_column="n"), prompt="hi", n=float("nan")).custom_id == "row-7"
        assert row(Table(id_column="text"), prompt="hi", text="").fault.code == "invalid_custom_id"
        assert row(Table(prompt_column="text", id_column="text"), text="hi").custom_id == "hi"


class TestOddRows:
    def test_a_prompt_that_is_missing_or_empty(self) -> None:
        found = row(Table(), prompt=None)
        assert (found.fault.code, found.fault.message) == ("missing_prompt", 'the row has no value in column "prompt"')
        assert (found.custom_id, found.line) == ("row-7", 7)
        assert row(Table(), prompt="").fault.code == "empty_prompt"

    def test_text_that_is_not_utf_8_keeps_its_name(self) -> None:
        columns = (Column("prompt"), Column("custom_id"))
        found = row(Table(), columns, prompt="a\udcff", custom_id="a")
        assert (found.fault.code, found.custom_id) == ("invalid_utf8", "a")
        assert row(Table(), columns, prompt="a", custom_id="a\udcff").custom_id is None

    def test_two_odd_rows_are_two_lines(self) -> None:
        recipe = Recipe(Table(template="{text}{n}"), ALL, "t")
        assert recipe.line(1, ["a", None], "") != recipe.line(1, ["b", None], "")

    def test_a_giant_row(self) -> None:
        recipe = Recipe(Table(), ALL, "t")
        frame = len('{"prompt":""}')
        assert isinstance(recipe.line(1, ["x" * (MAX_LINE_BYTES - frame)], "f"), Line)
        assert recipe.line(1, ["x" * (MAX_LINE_BYTES - frame + 1)], "f") == TooLong(
            1, MAX_LINE_BYTES + 1, MAX_LINE_BYTES, "f"
        )


class TestRefused:
    @pytest.mark.parametrize(
        ("table", "words"),
        [
            (
                {"prompt_column": "promt"},
                'there is no column "promt" (did you mean "prompt"?); it has "prompt", "text"',
            ),
            (
                {"prompt_column": "n"},
                "column \"n\" (int64) cannot be used as prompts; a template spells it: --template '{n}'",
            ),
            ({"prompt_column": "talk"}, 'column "talk" (list<struct>) cannot be used as prompts'),
            ({"prompt_column": "ids", "chat": True}, 'column "ids" (list<int64>) cannot be used as prompts'),
            ({"prompt_column": "twice"}, '2 columns are called "twice"'),
            ({"messages_column": "ids"}, 'column "ids" (list<int64>) cannot be used as messages: a list of structs'),
            ({"id_column": "uuid"}, 'there is no column "uuid"; it has'),
            ({"id_column": "ids"}, 'column "ids" (list<int64>) cannot be used as custom_ids'),
        ],
    )
    def test_columns_that_do_not_fit(self, table: dict[str, Any], words: str) -> None:
        said = refusal(**table)
        assert said.startswith("t: ")
        assert words in said

    def test_no_column_to_choose_by_itself(self) -> None:
        choose = "choose with --prompt-column, --messages-column or --template"
        assert refusal((Column("a"),)) == f't: there is no column "prompt": {choose}; it has "a"'
        both = (Column("prompt"), Column("messages"))
        assert refusal(both) == f't: there are columns "prompt" and "messages": {choose}'

    def test_a_table_with_very_many_columns_and_odd_names(self) -> None:
        said = refusal((Column("\x1b\n"), *(Column(str(number) * 99) for number in range(99))))
        assert "and 80 more" in said
        assert said.isprintable()
        assert len(said) < 2000

    @pytest.mark.parametrize(
        "table",
        [
            {"prompt_column": "a", "template": "{a}"},
            {"messages_column": "a", "template": "{a}"},
            {"prompt_column": "a", "messages_column": "a"},
            {"messages_column": "a", "chat": True},
        ],
    )
    def test_two_things_at_once(self, table: dict[str, Any]) -> None:
        with pytest.raises(SourceError):
            Table(**table)

    def test_chat_of_messages(self) -> None:
        assert "--chat makes messages of prompts" in refusal((Column("messages"),), chat=True)
