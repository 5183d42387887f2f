"""What became of a row, for programs."""

from dataclasses import dataclass, field
from typing import Any

from producer.results.shapes import taken_apart


@dataclass(frozen=True, slots=True)
class RowError:
    """Why a row has no answer.

    Attributes:
        code: a short machine-readable word, such as `invalid_json` or `context_length_exceeded`.
        message: one sentence for people.
        line: the row's line in the submitted file, or its position among the submitted rows, from 1; None where it is
            not known any more.
        file: the file that it is from, in a job of several; else "".
    """

    code: str
    message: str
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One row's end: an answer or an error.

    Attributes:
        custom_id: the row's name: the one that it was given, else `row-<line>`; None where its line could not be read.
        texts: the text of each choice, `n` of them; empty strings for choices that are tool calls alone. Empty for an
            error.
        response: the body that OpenAI's API would answer (`choices`, `usage`, `model`, ...); None for an error.
        error: why there is no answer; None where there is one.
    """

    custom_id: str | None
    texts: tuple[str, ...] = ()
    response: dict[str, Any] | None = field(default=None, repr=False)
    error: RowError | None = None

    @property
    def ok(self) -> bool:
        """Whether the row was answered."""
        return self.error is None

    @property
    def text(self) -> str:
        """The text of the first choice; empty for an error."""
        return self.texts[0] if self.texts else ""

    @property
    def usage(self) -> dict[str, Any]:
        """The tokens that the row took: `prompt_tokens`, `completion_tokens`, `total_tokens`; empty for an error."""
        found = (self.response or {}).get("usage")
        return found if isinstance(found, dict) else {}


def result_of(line: bytes) -> Result:
    """The result that a line of OpenAI's batch output shape spells; one that is damaged is an error."""
    flat, response = taken_apart(line)
    if response is None:
        error = RowError(flat["error_code"], flat["error"] or "", flat["line"], flat["file"] or "")
        return Result(flat["custom_id"], error=error)
    body = response.get("body")
    has_choice = flat["text"] is not None or flat["finish_reason"] is not None
    texts = flat["texts"] or ([flat["text"]] if has_choice else [])
    return Result(flat["custom_id"], tuple(text or "" for text in texts), body if isinstance(body, dict) else {})
