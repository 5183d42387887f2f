"""How the parts of intake say that a line is no row, or that a file cannot be read as rows."""

from typing import Any

from producer.record.models import RowFault


class Refused(Exception):  # noqa: N818 - an expected outcome, caught in one place (`rows.parse_line`)
    """The line is refused; `fault` says why: a short code, and one sentence for the user."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.fault = RowFault(code, message)


class SourceError(Exception):
    """A whole source of rows is refused; the message is one line that names the file, what is wrong and the fix."""


def kind(value: Any) -> str:
    """What a parsed JSON value is, in JSON's own words and with an article, for messages."""
    return next(name for type_, name in _KINDS if isinstance(value, type_))


_KINDS: tuple[tuple[type, str], ...] = (
    (type(None), "null"),
    (bool, "a boolean"),  # before int, of which it is a kind in Python
    (int, "a number"),
    (float, "a number"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)
