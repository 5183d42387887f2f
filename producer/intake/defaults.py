"""What a job asks for on behalf of its rows: parameters that hold where a row does not say otherwise. Pure."""

from typing import Any

from producer.intake import strict_json
from producer.intake.parameters import check_parameters, parameters_of, suggestion
from producer.intake.refused import Refused, kind
from producer.intake.requests import PROMPT_MEMBERS
from producer.record.models import URLS, dumps

#: The most that all of a job's defaults may have, in characters of JSON: they go to a worker with every shard.
MAX_CHARACTERS = 2**18
#: What is not the same for all rows, or is asked for in another way.
_OF_A_ROW = {
    **dict.fromkeys((*PROMPT_MEMBERS.values(), "custom_id", "method", "url", "body"), "it is for each row to say"),
    "model": "--model names the job's model",
    "stream": "a batch answers each row at once",
}


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object that `text` spells.

    Raises:
        Refused: it spells none.
    """
    value = strict_json.parse(text)
    if not isinstance(value, dict):
        raise Refused("not_an_object", f"it is {kind(value)}, not an object")
    return value


def check_defaults(defaults: dict[str, Any]) -> None:
    """Accept parameters for all rows of a job. Whether a model can do what they ask is judged by the worker.

    One that rows of a single URL have is accepted: it makes error rows of those of the other one.

    Raises:
        Refused: one of them is a row's own, or no row could have it, or not this value of it.
    """
    for name, why in _OF_A_ROW.items():
        if name in defaults:
            raise Refused("not_a_default", f'"{name}" cannot be a default: {why}')
    for name, value in defaults.items():
        _check_default(name, value)


def check_size(defaults: dict[str, Any]) -> None:
    """Accept all that a job asks for on behalf of its rows, as it is stored.

    Raises:
        Refused: it is too large.
    """
    if (size := len(dumps(defaults))) > MAX_CHARACTERS:
        raise Refused("too_large", f"they have {size} characters of JSON, more than the {MAX_CHARACTERS} allowed")


def _check_default(name: str, value: Any) -> None:
    fault: Refused | None = None
    for url in URLS:
        if name in parameters_of(url):
            try:
                check_parameters(url, {name: value})
            except Refused as refused:
                fault = refused
            else:
                return
    if fault is None:
        known = {name for url in URLS for name in parameters_of(url)}
        raise Refused("unknown_parameter", f"rows have no parameter {strict_json.shown(name)}{suggestion(name, known)}")
    raise fault
