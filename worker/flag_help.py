"""How flags read in `worker run --help`: pydantic-settings shows Python's types, and a default where there is none."""

from argparse import Action, ArgumentParser
from typing import Any

_PLACEHOLDERS = {"str": "TEXT", "Path": "FILE", "int": "N", "float": "X"}
#: Where nothing, or empty text, is the default, the description itself says what then holds.
_NO_DEFAULTS = (" (default: None)", " (default: )")


def add_argument(parser: ArgumentParser, *names: str, **options: Any) -> Action:
    """`ArgumentParser.add_argument`, for the source of settings to add its flags with."""
    if metavar := options.get("metavar"):
        options["metavar"] = _PLACEHOLDERS.get(metavar, metavar)
    for ending in _NO_DEFAULTS:
        options["help"] = options["help"].removesuffix(ending)
    return parser.add_argument(*names, **options)
