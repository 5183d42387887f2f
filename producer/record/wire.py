"""What workers say of themselves in Redis, read as what it must be: flat records of text, numbers and yes or no."""

import json
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_origin, get_type_hints

T = TypeVar("T")


def read(kind: type[T], said: Any) -> T | None:
    """A dataclass from an object of JSON, or from its text; None when it is no such thing.

    A newer worker may say more than this version knows, an older one less: what is unknown is passed over, what is
    missing has its default.
    """
    try:
        found = json.loads(said) if isinstance(said, str) else said
        if not isinstance(found, dict):
            return None
        values = {name: _checked(hint, found[name]) for name, hint in _hints(kind, found).items()}
        return kind(**values)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _hints(kind: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The type of each field that must be there, or is."""
    hints = get_type_hints(kind)
    optional = {
        each.name for each in fields(kind) if each.default is not MISSING or each.default_factory is not MISSING
    }
    return {each.name: hints[each.name] for each in fields(kind) if each.name in found or each.name not in optional}


def _checked(hint: Any, value: Any) -> Any:
    wanted = (int, float) if hint is float else get_origin(hint) or hint
    if hint is not bool and isinstance(value, bool):
        raise TypeError("no number")
    if not isinstance(value, wanted):
        raise TypeError(f"not {wanted}")
    return value
