"""What a row's parameters may be, by the schema that was made from vLLM's request classes (`request_schema.json`).

Each parameter is looked at by itself: whether they go together is judged by the worker, after the job's defaults have
joined the row. Nothing is refused that vLLM takes.
"""

import json
import re
from collections.abc import Callable, Collection
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import orjson

from producer.intake.refused import Refused, kind
from producer.intake.requests import PROMPT_MEMBERS
from producer.intake.strict_json import shown
from producer.record.models import URLS

SCHEMA_FILE = Path(__file__).with_name("request_schema.json")

Check = Callable[[Any], Any]

#: How alike two names must be for one to be a slip of the other, from 0 to 1.
_ALIKE = 0.75
_SHOWN_CHARACTERS = 60
#: Most rows of a dataset have the same parameters: so many sets of them are remembered as good, where they have no
#: more bytes of JSON than this.
_REMEMBERED, _LONGEST_REMEMBERED = 256, 2**13


def check_parameters(url: str, body: dict[str, Any]) -> None:
    """Accept the parameters of a row for `url`, one of `URLS`: all of `body` but its prompt or messages.

    Raises:
        Refused: `unknown_parameter` or `invalid_request`, about the first one that vLLM would refuse.
    """
    known = _known(url)
    parameters = orjson.dumps({**body, PROMPT_MEMBERS[url]: None})
    if parameters in known.good:
        return
    known.check(body)
    if len(parameters) <= _LONGEST_REMEMBERED:
        if len(known.good) >= _REMEMBERED:
            known.good.clear()
        known.good.add(parameters)


def parameters_of(url: str) -> Collection[str]:
    """The names that rows for `url` may have beside what they ask."""
    return _schema()[url].keys()


def no_such_parameter(url: str, name: str, known: Collection[str]) -> str:
    """What to tell somebody who gave a row for `url` a parameter that it does not have.

    Args:
        url: any.
        name: as it was given.
        known: the parameters that there are.
    """
    return f"{url} has no parameter {shown(name)}{suggestion(name, known)}"


def suggestion(name: str, known: Collection[str]) -> str:
    """`; did you mean "..."?` where one of the names that are known looks like `name`, else nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for slips

    alike = get_close_matches(name[:_SHOWN_CHARACTERS], known, n=1, cutoff=_ALIKE)
    return f'; did you mean "{alike[0]}"?' if alike else ""


class _Known:
    """What is known of a URL's parameters: how to check each, and which were good together."""

    def __init__(self, url: str) -> None:
        self.good: set[bytes] = set()
        self._url = url
        self._checks: dict[str, Check] = {PROMPT_MEMBERS[url]: _pass}

    def check(self, body: dict[str, Any]) -> None:
        """Raises `Refused`."""
        for name, value in body.items():
            check = self._checks.get(name) or self._compile(name)
            try:
                check(value)
            except ValueError as error:  # fastjsonschema's is one
                raise Refused("invalid_request", _fault(name, error)) from None

    def _compile(self, name: str) -> Check:
        """The check of a parameter that no row had before."""
        import fastjsonschema  # noqa: PLC0415 - not to slow `producer --help`

        schema = _schema()[self._url].get(name)
        if schema is None:
            raise Refused("unknown_parameter", _unknown(self._url, name[: _SHOWN_CHARACTERS + 1]))
        self._checks[name] = check = fastjsonschema.compile(schema, use_default=False)
        return check


@lru_cache(256)  # every row of a dataset may have the same slip, and looking for what was meant takes its time
def _unknown(url: str, name: str) -> str:
    others = [other for other in URLS if other != url and name in _schema()[other]]
    if others:
        return f"{url} has no parameter {shown(name)}, only {others[0]} has"
    return no_such_parameter(url, name, parameters_of(url))


@cache
def _known(url: str) -> _Known:
    return _Known(url)


@cache
def _schema() -> dict[str, dict[str, Any]]:
    """The schema of each parameter of each URL."""
    urls: dict[str, dict[str, Any]] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))["urls"]
    return urls


def _pass(_: Any) -> None:
    """Accept what is checked elsewhere."""


def _fault(name: str, error: Any) -> str:
    """What a validation error says, in the words of the schema's descriptions."""
    place = shown(re.sub("^data", lambda _: name, error.name))
    if error.rule == "required":
        missing = next(part for part in error.definition["required"] if part not in error.value)
        return f'{place} has no "{missing}"'
    return f"{place} must be {error.definition['description']}, not {_shown_value(error.value)}"


def _shown_value(value: Any) -> str:
    if isinstance(value, list | dict):
        return kind(value)
    if isinstance(value, str):
        return shown(value)
    return json.dumps(value)
