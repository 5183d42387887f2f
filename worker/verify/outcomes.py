"""What of two response bodies is not the same. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Body = Mapping[str, Any]

#: Numbers that describe the text; what they are to the last bit is no part of it.
_NUMBERS = ("logprobs", "prompt_logprobs")
#: Characters of each text that are shown before and after the place where two part.
_BEFORE, _AFTER = 16, 32


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two answers to one row part.

    Attributes:
        choice: the index of the choice; None: it is about the whole answer.
        fields: what differs, as `message.content` or `finish_reason`.
        job: what the first of them holds in the job's answer, shortened.
        plain: the same of plain decoding.
    """

    choice: int | None
    fields: tuple[str, ...]
    job: str
    plain: str


def differences(job: Body, plain: Body) -> list[Difference]:
    """What the job's answer has otherwise than plain decoding's: choices by their index, then tokens counted."""
    prompt = _unlike(_usage(job, "prompt_tokens"), _usage(plain, "prompt_tokens"), None)
    if prompt:
        return [prompt]  # another prompt: whatever else differs follows from it
    ours, theirs = _choices(job), _choices(plain)
    if ours.keys() != theirs.keys():
        return [Difference(None, ("choices",), f"{len(ours)} choices", f"{len(theirs)} choices")]
    found = [_unlike(ours[index], theirs[index], index) for index in ours]
    if not any(found):
        found = [_unlike(_usage(job, "completion_tokens"), _usage(plain, "completion_tokens"), None)]
    return [difference for difference in found if difference is not None]


def choice_of(body: Body, index: int) -> Body:
    """A choice by its index."""
    found: Body = next(choice for choice in body["choices"] if choice["index"] == index)
    return found


def _choices(body: Body) -> dict[int, dict[str, Any]]:
    return {choice["index"]: _outcome(choice) for choice in body["choices"]}


def _outcome(choice: Body) -> dict[str, Any]:
    """All that a choice says, flat; what is null says nothing."""
    message = choice.get("message") or {}
    flat = {name: value for name, value in choice.items() if name not in ("message", *_NUMBERS)}
    flat |= {f"message.{name}": value for name, value in message.items()}
    calls = flat.get("message.tool_calls")
    if isinstance(calls, list):  # their ids are made up for each answer
        flat["message.tool_calls"] = [{**call, "id": None} for call in calls]
    # Texts first: they are what is shown of a difference.
    return dict(sorted(((name, value) for name, value in flat.items() if value is not None), key=_texts_first))


def _texts_first(item: tuple[str, Any]) -> tuple[bool, str]:
    name = item[0]
    return not (name == "text" or name.startswith("message.")), name


def _usage(body: Body, name: str) -> dict[str, Any]:
    return {f"usage.{name}": (body.get("usage") or {}).get(name)}


def _unlike(job: dict[str, Any], plain: dict[str, Any], choice: int | None) -> Difference | None:
    names = list(dict.fromkeys([*job, *plain]))
    fields = tuple(name for name in names if job.get(name) != plain.get(name))
    if not fields:
        return None
    return Difference(choice, fields, *_shown(job.get(fields[0]), plain.get(fields[0])))


def _shown(job: Any, plain: Any) -> tuple[str, str]:
    """Both values around the place where they part."""
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in (job, plain)]
    same = next((at for at, (one, other) in enumerate(zip(*texts, strict=False)) if one != other), min(map(len, texts)))
    start = max(0, same - _BEFORE)
    ours, theirs = (f"{'...' if start else ''}{text[start : same + _AFTER]}" for text in texts)
    return ours, theirs
