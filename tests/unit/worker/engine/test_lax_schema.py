"""A class's JSON schema, as lax as pydantic is: for classes made for this, by what pydantic itself takes."""

import json
from typing import Annotated, Any, Literal

import fastjsonschema
import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from worker.engine.lax_schema import bounded, relax


class Named(BaseModel):
    name: str
    size: int | None = None


class Text(BaseModel):
    type: Literal["text", "plain"]
    text: str | None = None


class Sum(BaseModel):
    type: Literal["sum"]
    parts: list[float]


SCALARS: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 0.0, 1.0, 0.5, 1e300, 2**62),
    *(
        "",
        " ",
        "a",
        "0",
        "1",
        "2",
        "-3",
        "+4",
        " 5 ",
        "1_000",
        "6.0",
        "6.",
        "6.5",
        "1e3",
        ".5",
        "nan",
        "Inf",
        "-infinity",
    ),
    *("true", "False", "yes", "N", "on", "OFF", "t", "maybe", "text", "sum"),
]
VALUES: list[Any] = [
    *SCALARS,
    *(
        [],
        ["a"],
        [1, "2"],
        ["x", 1],
        [None],
        {},
        {"a": 1},
        {"a": "x"},
        {"name": "n"},
        {"name": 1},
        {"name": "n", "x": 1},
    ),
    *({"type": "text"}, {"type": "text", "text": 1}, {"type": "sum"}, {"type": "sum", "parts": ["1"]}, {"type": "x"}),
    *({"type": "sum", "parts": ["x"]}, {"name": "n", "size": "7"}, {"name": "n", "size": "x"}),
]


def validator(kind: Any) -> Any:
    schema = TypeAdapter(kind).json_schema()
    return fastjsonschema.compile(relax(schema, schema.get("$defs", {})), use_default=False)


def takes(check: Any, value: Any) -> bool:
    try:
        check(json.loads(json.dumps(value)))
    except ValueError:  # both libraries' errors are
        return False
    return True


@pytest.mark.parametrize(
    "kind",
    [
        *(int, float, bool, str, int | None, float | None, bool | None, str | int, bool | float, Any),
        *(list[int], list[str] | str | None, list[str] | list[int], dict[str, float], dict[str, str | int | list[str]]),
        *(Literal["a", "text"], Literal["a"] | Literal["text"] | Named | None, Named, list[Named], Text | Sum | None),
        *(Text | Named, Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0, le=1)] | None),
        *(Annotated[list[str], Field(max_length=1)], Annotated[str, Field(min_length=1)] | None),
    ],
)
def test_what_pydantic_takes_is_taken_and_nonsense_is_not(kind: Any) -> None:
    pydantic, ours = TypeAdapter(kind).validate_python, validator(kind)
    for value in VALUES:
        assert takes(ours, value) or not takes(pydantic, value), value
    if kind is not Any:
        assert not takes(ours, [[["nonsense"]]])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (int, ["a", 1.5, "1.5", None, [], {}]),
        (float, ["a", None, [], {}]),
        (bool, ["maybe", 2, 0.5, None]),
        (str | None, [1, True, []]),
        (Literal["a"], ["b", "aa", 1]),
        (Annotated[float, Field(gt=0, le=1)], [0, 1.5, -1]),
        (list[int], [["x"], {}, "1"]),
        (
            Text | Sum | None,
            [{}, {"type": "x"}, {"type": "sum"}, {"type": "text", "text": 1}, {"type": "sum", "parts": 1}],
        ),
    ],
)
def test_it_is_not_laxer_than_that(kind: Any, values: list[Any]) -> None:
    ours = validator(kind)
    for value in values:
        assert not takes(ours, value), value
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "an integer"),
        (Annotated[float, Field(ge=0, le=2)] | None, "a number from 0 to 2"),
        (Annotated[int, Field(ge=-(2**63))], "an integer"),
        (str | list[str] | None, "a string or an array of strings"),
        (Literal["a", "b", "c"], '"a", "b" or "c"'),
        (Text | Sum | None, 'an object whose "type" is "text", "plain" or "sum"'),
        (bool, "true or false"),
    ],
)
def test_a_schema_says_in_words_what_is_expected(kind: Any, words: str) -> None:
    schema = TypeAdapter(kind).json_schema()
    assert relax(schema, schema.get("$defs", {}))["description"] == words


def test_bounds_are_put_where_they_belong() -> None:
    schema = TypeAdapter(str | list[str] | int | None).json_schema()
    text, array, number, null = bounded(schema, {"minLength": 1, "minimum": 3})["anyOf"]
    assert (text["minLength"], array["items"]["minLength"], number["minimum"]) == (1, 1, 3)
    assert null == {"type": "null"}
    assert "minimum" not in {**text, **array}


def test_a_form_that_is_not_known_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="unknown form"):
        relax({"type": "decimal"}, {})
