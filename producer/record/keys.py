"""Key names, read from `lua/schema.lua`, which describes what lies under each."""

import re
from functools import cache
from importlib import resources

_LUA = resources.files(__package__) / "lua"


@cache
def _names() -> dict[str, str]:
    return dict(re.findall(r'^\s+(\w+)\s*= "(minedraft:[^"]+)"', lua("schema"), flags=re.MULTILINE))


def lua(name: str) -> str:
    """The text of `lua/<name>.lua`."""
    return (_LUA / f"{name}.lua").read_text(encoding="utf-8")


def key(name: str, *parts: object) -> str:
    """The key `name` of the schema, with its `%s` filled by `parts`."""
    return _names()[name] % parts
