"""JSON schemas of pydantic's classes, as lax as pydantic is with JSON, and worded for people. Pure; knows no engine.

Pydantic's own schema says what a value should be; its validation takes more. A schema that is to refuse nothing that
the class takes follows these rules:

- an integer may be a boolean, a float without a fraction (JSON schema says so itself) or a string that spells one;
- a number may be a boolean or a string that spells one, "inf" and "nan" included;
- a boolean may be 0, 1 or one of the strings that pydantic knows ("true", "off", "y", ...);
- strings, arrays, objects and null are only what they are;
- an object may hold more members than it has properties;
- how long an array may be is not looked at: vLLM lets environment variables of the worker say that.

Bounds hold for numbers, not for strings that spell them: such a row is left to the worker. What may be of several JSON
types becomes one flat schema with a list of types, as each keyword looks at values of its own type only; so a validator
can say which part of a nested value is wrong. Each schema's `description` says what is expected, for messages.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Schema = dict[str, Any]

_INTEGER_TEXT = r"^\s*[+-]?[0-9][0-9_]*(\.0*)?\s*$"
_NUMBER_TEXT = r"^\s*[+-]?((?=[._]*[0-9])[0-9_]*\.?[0-9_]*([eE][+-]?[0-9_]+)?|(?i:inf|infinity|nan))\s*$"
_BOOLEAN_TEXT = "^(?i:0|1|f|t|n|y|no|yes|on|off|false|true)$"

#: Keywords of numbers, and their words in messages.
_BOUNDS = {
    "minimum": "of at least",
    "exclusiveMinimum": "above",
    "maximum": "of at most",
    "exclusiveMaximum": "below",
}
#: The keywords that look at values of the same JSON types. (To Python a boolean is a number.)
_GROUPS: tuple[tuple[frozenset[str], tuple[str, ...]], ...] = (
    (frozenset({"integer", "number", "boolean"}), tuple(_BOUNDS)),
    (frozenset({"string"}), ("pattern", "minLength", "maxLength")),
    (frozenset({"array"}), ("items",)),
    (frozenset({"object"}), ("properties", "required", "additionalProperties", "allOf")),
)
#: Larger bounds are those of 64-bit integers, which no row exceeds: not worth a word.
_SHOWN_BOUND = 2**62


def relax(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """What pydantic takes where its own JSON schema says `schema`.

    Args:
        schema: part of what `model_json_schema()` gave.
        definitions: the whole's `$defs`.

    Raises:
        ValueError: it has a form that is not known here.
        RecursionError: it holds itself.
    """
    if "$ref" in schema:
        return relax(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return _union(list(_branches(schema["anyOf"], definitions)), definitions)
    if "enum" in schema or "const" in schema:
        return _words(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind not in _OF_A_TYPE:
        raise ValueError(f"unknown form of schema: {schema}")
    return _OF_A_TYPE[kind](schema, definitions)


def bounded(schema: Mapping[str, Any], bounds: Mapping[str, Any]) -> Schema:
    """The same, before it is relaxed, where its numbers, or its strings, or those in its array, have `bounds`."""
    kind = schema.get("type")
    if "anyOf" in schema:
        return {**schema, "anyOf": [bounded(branch, bounds) for branch in schema["anyOf"]]}
    if kind == "array":
        return {**schema, "items": bounded(schema["items"], bounds)}
    ours = tuple(_BOUNDS) if kind in ("integer", "number") else ("minLength",) if kind == "string" else ()
    return {**schema, **{name: bound for name, bound in bounds.items() if name in ours}}


def _branches(schemas: Iterable[Mapping[str, Any]], definitions: Mapping[str, Any]) -> Iterator[Schema]:
    """All of them without references and unions; what is one of several words comes as one."""
    words: list[str] = []
    for schema in schemas:
        one = schema
        while "$ref" in one:
            one = definitions[one["$ref"].rpartition("/")[2]]
        if "anyOf" in one:
            yield from _branches(one["anyOf"], definitions)
        elif "enum" in one or "const" in one:
            words += one.get("enum", [one.get("const")])
        else:
            yield dict(one)
    if words:
        yield {"enum": words}


def _union(branches: list[Schema], definitions: Mapping[str, Any]) -> Schema:
    tagged = [branch for branch in branches if _tags(branch)]
    if len(tagged) > 1:
        others = [relax(branch, definitions) for branch in branches if not _tags(branch)]
        return _merged([_by_tag(tagged, definitions), *others])
    return _merged([relax(branch, definitions) for branch in branches])


def _tags(schema: Mapping[str, Any]) -> list[str]:
    """The words that an object's `type` may be, where it must have one."""
    tag = schema.get("properties", {}).get("type", {}) if "type" in schema.get("required", ()) else {}
    return list(tag.get("enum", [tag["const"]] if "const" in tag else []))


def _by_tag(branches: list[Schema], definitions: Mapping[str, Any]) -> Schema:
    """Objects that their `type` tells apart: each is held to its own kind's schema."""
    kinds: dict[str, list[int]] = {}
    for position, branch in enumerate(branches):
        for tag in _tags(branch):
            kinds.setdefault(tag, []).append(position)
    conditions = []
    for positions in dict.fromkeys(map(tuple, kinds.values())):
        tags = [tag for tag, those in kinds.items() if tuple(those) == positions]
        is_tagged = {"type": "object", "required": ["type"], "properties": {"type": {"enum": tags}}}
        then = _merged([relax(branches[position], definitions) for position in positions])
        conditions.append({"if": is_tagged, "then": then})
    words = _words(list(kinds))
    return {
        "type": ["object"],
        "required": ["type"],
        "properties": {"type": words},
        "allOf": conditions,
        "description": f'an object whose "type" is {words["description"]}',
    }


def _merged(schemas: list[Schema]) -> Schema:
    """What is one of `schemas`: as one flat schema where it can be."""
    told = dict.fromkeys(schema["description"] for schema in schemas if schema.get("type") != ["null"])
    described = _either(list(told))
    flat = schemas[0]
    for schema in schemas[1:]:
        both = _flat(flat, schema)
        if both is None:
            return {"anyOf": schemas, "description": described}
        flat = both
    return {**flat, "description": described}


def _flat(one: Schema, other: Schema) -> Schema | None:
    """What is one of two, None where no keywords say that."""
    if "type" not in one or "type" not in other:
        return None
    both: Schema = {"type": list(dict.fromkeys(one["type"] + other["type"]))}
    for types, keywords in _GROUPS:
        sides = [{name: side[name] for name in keywords if name in side} for side in (one, other)]
        looked_at = [side for side, schema in zip(sides, (one, other), strict=True) if types & set(schema["type"])]
        if len(looked_at) == 2 and sides[0] != sides[1]:
            if types != {"string"} or all(looked_at):
                return None
            continue  # any string is one of both
        for side in looked_at:
            both |= side
    return both


def _anything(_: Mapping[str, Any], __: Mapping[str, Any]) -> Schema:
    return {"description": "any value"}


def _array(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    items = relax(schema.get("items", {}), definitions)
    noun = items["type"][0] if "type" in items else "value"
    return {"type": ["array"], "items": items, "description": f"an array of {noun}s"}


def _object(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    properties = {
        name: relax(part, definitions)
        for name, part in schema.get("properties", {}).items()
        if not name.startswith("_")  # no row can set it
    }
    more = schema.get("additionalProperties", True)
    made: Schema = {"type": ["object"], "description": "an object"}
    if properties:
        made["properties"] = properties
    if schema.get("required"):
        made["required"] = list(schema["required"])
    if isinstance(more, Mapping):
        made["additionalProperties"] = relax(more, definitions)
    return made


def _words(words: list[str]) -> Schema:
    told = _either([f'"{word}"' for word in words])
    return {"type": ["string"], "pattern": f"^({'|'.join(map(re.escape, words))})$", "description": told}


def _either(alternatives: list[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, (", ".join(alternatives[:-1]), alternatives[-1])))


def _integer(schema: Mapping[str, Any], _: Mapping[str, Any]) -> Schema:
    return _numeric(schema, "integer", _INTEGER_TEXT)


def _number(schema: Mapping[str, Any], _: Mapping[str, Any]) -> Schema:
    return _numeric(schema, "number", _NUMBER_TEXT)


def _numeric(schema: Mapping[str, Any], kind: str, text: str) -> Schema:
    bounds = {name: schema[name] for name in _BOUNDS if name in schema}
    described = f"{'an' if kind == 'integer' else 'a'} {kind}{_range(bounds)}"
    return {"type": [kind, "boolean", "string"], "pattern": text, **bounds, "description": described}


def _range(bounds: Mapping[str, float]) -> str:
    """Bounds in words, with a space before them."""
    shown = {name: bound for name, bound in bounds.items() if abs(bound) < _SHOWN_BOUND}
    if shown.keys() == {"minimum", "maximum"}:
        return f" from {shown['minimum']} to {shown['maximum']}"
    return " and".join(f" {words} {shown[name]}" for name, words in _BOUNDS.items() if name in shown)


def _boolean(_: Mapping[str, Any], __: Mapping[str, Any]) -> Schema:
    types = ["boolean", "integer", "string"]
    return {"type": types, "minimum": 0, "maximum": 1, "pattern": _BOOLEAN_TEXT, "description": "true or false"}


def _string(schema: Mapping[str, Any], _: Mapping[str, Any]) -> Schema:
    lengths = {name: schema[name] for name in ("minLength", "maxLength") if name in schema}
    described = "a string that is not empty" if schema.get("minLength") else "a string"
    return {"type": ["string"], **lengths, "description": described}


def _null(_: Mapping[str, Any], __: Mapping[str, Any]) -> Schema:
    return {"type": ["null"], "description": "null"}


_OF_A_TYPE = {
    None: _anything,
    "array": _array,
    "boolean": _boolean,
    "integer": _integer,
    "null": _null,
    "number": _number,
    "object": _object,
    "string": _string,
}
