"""A row of a table -> a short line: which columns are asked, and what of them becomes the prompt. Pure."""

import difflib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from string import Formatter
from typing import Any

from producer.intake import strict_json
from producer.intake.lines import MAX_LINE_BYTES, Line, TooLong
from producer.intake.refused import Refused, SourceError
from producer.record.models import RowFault

_SHOWN_COLUMNS = 20
_CHOICES = "--prompt-column, --messages-column or --template"


@dataclass(frozen=True, slots=True)
class Table:
    """How rows of a table become short lines. Columns that are not named here are not used.

    Attributes:
        prompt_column: the column with the prompts (default: `prompt`, or else `messages`, where there is one).
        template: the prompt with `{column}` in it for values of columns, and `{{` for a brace.
        messages_column: the column with chat messages: a list of structs, or a text of JSON.
        chat: each prompt becomes the one message of a user.
        id_column: the column with the `custom_id`s (default: `custom_id`, where there is one).

    Raises:
        SourceError: it asks for two things at once.
    """

    prompt_column: str | None = None
    template: str | None = None
    messages_column: str | None = None
    chat: bool = False
    id_column: str | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if sum(choice is not None for choice in (self.prompt_column, self.template, self.messages_column)) > 1:
            raise SourceError(f"give one of {_CHOICES}")
        if self.messages_column is not None and self.chat:
            raise SourceError("--chat makes messages of prompts: --messages-column names messages already")


class Form(Enum):
    """What intake can make of a column's values."""

    TEXT = "text"
    VALUE = "numbers and the like, which have a spelling"
    TOKENS = "lists of integers"
    MESSAGES = "lists of structs with a role"
    OTHER = "nothing"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a file: its name, its form, and its type in the words of its format."""

    name: str
    form: Form = Form.TEXT
    type: str = "text"


class Recipe:
    """How to make lines of one file's rows.

    Attributes:
        columns: positions of the columns that are needed, in the file; a row's values come in this order.
    """

    def __init__(self, table: Table, columns: Sequence[Column], name: str) -> None:
        """Choose among `columns` of the file that messages call `name`.

        Raises:
            SourceError: `table` does not fit them.
        """
        self._all, self._name = columns, name
        self.columns: list[int] = []
        self._ask = self._choose(table)
        self._id = self._id_column(table)

    def line(self, number: int, values: Sequence[Any], file: str) -> Line | TooLong:
        """Row `number`, from 1, as a short line; `file` as in `Line`. None among the values: there is none."""
        fields: dict[str, Any] = {}
        fault = None
        if self._id is not None and not _is_missing(values[self._id]):
            fields["custom_id"] = _spelled(values[self._id])
        try:
            fields |= self._ask(values)
        except Refused as refused:
            fault = refused.fault
            fields["row"] = values
        return spelled_line(number, fields, file, fault)

    def _choose(self, table: Table) -> Callable[[Sequence[Any]], dict[str, Any]]:
        if table.template is not None:
            return self._template(table.template, table.chat)
        prompt, messages = table.prompt_column, table.messages_column
        if prompt is None and messages is None:
            prompt, messages = self._default()
        if messages is not None:
            if table.chat:
                raise SourceError(f"{self._name}: --chat makes messages of prompts: {_shown(messages)} has messages")
            return self._messages(messages)
        assert prompt is not None
        return self._prompt(prompt, table.chat)

    def _default(self) -> tuple[str | None, str | None]:
        names = {column.name for column in self._all}
        found = [name if name in names else None for name in ("prompt", "messages")]
        if found == [None, None]:
            raise SourceError(f'{self._name}: there is no column "prompt": choose with {_CHOICES}; {self._has()}')
        if None not in found:
            raise SourceError(f'{self._name}: there are columns "prompt" and "messages": choose with {_CHOICES}')
        return found[0], found[1]

    def _prompt(self, name: str, chat: bool) -> Callable[[Sequence[Any]], dict[str, Any]]:
        place = self._take(name, "as prompts", Form.TEXT, *(() if chat else (Form.TOKENS,)))

        def ask(values: Sequence[Any]) -> dict[str, Any]:
            return _asked(_present(values[place], name), chat)

        return ask

    def _messages(self, name: str) -> Callable[[Sequence[Any]], dict[str, Any]]:
        place = self._take(name, 'as messages: a list of structs with "role" and "content"', Form.MESSAGES, Form.TEXT)

        def ask(values: Sequence[Any]) -> dict[str, Any]:
            value = _present(values[place], name, "missing_messages")
            return {"messages": _parsed(value, name) if isinstance(value, str) else _without_nulls(value)}

        return ask

    def _template(self, template: str, chat: bool) -> Callable[[Sequence[Any]], dict[str, Any]]:
        parts = [
            (text, None if name is None else (self._take(name, "in a template", Form.TEXT, Form.VALUE), name))
            for text, name in _parts(template)
        ]

        def ask(values: Sequence[Any]) -> dict[str, Any]:
            prompt = "".join(
                text + ("" if column is None else _spelled(_present(values[column[0]], column[1])))
                for text, column in parts
            )
            return _asked(prompt, chat)

        return ask

    def _id_column(self, table: Table) -> int | None:
        name = table.id_column
        if name is None and all(column.name != "custom_id" for column in self._all):
            return None
        return self._take(name or "custom_id", "as custom_ids", Form.TEXT, Form.VALUE)

    def _take(self, name: str, use: str, *forms: Form) -> int:
        """Where the values of this column will be in a row's values."""
        places = [place for place, column in enumerate(self._all) if column.name == name]
        if not places:
            close = difflib.get_close_matches(name, [column.name for column in self._all], 1)
            meant = f" (did you mean {_shown(close[0])}?)" if close else ""
            raise SourceError(f"{self._name}: there is no column {_shown(name)}{meant}; {self._has()}")
        if len(places) > 1:
            raise SourceError(f"{self._name}: {len(places)} columns are called {_shown(name)}: rename all but one")
        column = self._all[places[0]]
        if column.form not in forms:
            fix = f"; a template spells it: --template '{{{name}}}'" if column.form is Form.VALUE else ""
            raise SourceError(f"{self._name}: column {_shown(name)} ({column.type}) cannot be used {use}{fix}")
        if places[0] not in self.columns:
            self.columns.append(places[0])
        return self.columns.index(places[0])

    def _has(self) -> str:
        names = [_shown(column.name) for column in self._all]
        more = len(names) - _SHOWN_COLUMNS
        return "it has " + ", ".join(names[:_SHOWN_COLUMNS]) + (f" and {more} more" if more > 0 else "")


def spelled_line(number: int, fields: dict[str, Any], file: str, fault: RowFault | None) -> Line | TooLong:
    """A row's fields as a line of JSON. Text that is no UTF-8 holds lone surrogates (`surrogateescape`): a fault."""
    text = _json.encode(fields)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = json.dumps(fields, default=str).encode()
        fault = RowFault("invalid_utf8", "the row is not UTF-8")
    if len(data) > MAX_LINE_BYTES:
        return TooLong(number, len(data), MAX_LINE_BYTES, file)
    return Line(number, data, file, fault)


def _parts(template: str) -> list[tuple[str, str | None]]:
    """Texts, each with the name of the column that follows it."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise SourceError(f"--template: {error} (a brace itself is written twice)") from None
    if not any(name for _, name, _, _ in parsed):
        raise SourceError("--template: it names no column: write {column}, with one brace on each side")
    for _, name, spec, conversion in parsed:
        if name == "" or spec or conversion:
            raise SourceError("--template: between braces stands the name of a column and nothing else")
    return [(text, name) for text, name, _, _ in parsed]


def _asked(prompt: Any, chat: bool) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}


def _is_missing(value: Any) -> bool:
    """True where there is none; NaN is how pandas says that."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _present(value: Any, name: str, code: str = "missing_prompt") -> Any:
    """The value, which must be there."""
    if _is_missing(value):
        raise Refused(code, f"the row has no value in column {_shown(name)}")
    return value


def _parsed(text: str, name: str) -> Any:
    try:
        return strict_json.parse(text)
    except Refused as refused:
        raise Refused(refused.fault.code, f"in column {_shown(name)}: {refused.fault.message}") from None


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _without_nulls(value: Any) -> Any:
    """The same without the members that a struct must have and this one does not use."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value


def _shown(name: str) -> str:
    return strict_json.shown(name)


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
