"""The wire format: what producers and workers say to each other, as values.

Everything here travels through Redis as JSON (never pickle: whoever can write to Redis must not be able to
run code in a worker).
"""

import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import orjson

CHAT_URL = "/v1/chat/completions"
COMPLETIONS_URL = "/v1/completions"
URLS = (CHAT_URL, COMPLETIONS_URL)

#: A row, or a job, that names this model means "whatever the worker serves".
TARGET = "target"

#: Rows in a shard: the unit that a worker leases. Small enough that two workers share a short job and that
#: little is repeated when one dies, large enough that a claim (one round trip) is cheap beside its rows.
SHARD_ROWS = 16


class JobState(StrEnum):
    """Where a job is in its life; every value is what `producer status` prints."""

    SUBMITTING = "submitting"
    """Rows are being staged; no worker can see them."""
    QUEUED = "queued"
    """Committed; no worker has claimed a shard yet."""
    RUNNING = "running"
    """At least one shard has been claimed."""
    PAUSED = "paused"
    """No shard is claimed until it is resumed: a user asked for that, or it stopped itself (its `reason`)."""
    COMPLETED = "completed"
    """Every row has a result or an error."""
    CANCELLED = "cancelled"
    """Stopped by a user; what was done stays."""

    @property
    def ended(self) -> bool:
        """True when no row of the job will change any more."""
        return self in (JobState.COMPLETED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt: one non-blank line of a submitted file.

    Attributes:
        index: position among the job's non-blank lines, from 0. The row's identity inside its job.
        line: line number in its file, from 1, blank lines counted; in a table, the row's number, from 1.
        custom_id: the user's name for it, unique within the job (`implied_id` where the line has none).
        url: one of `URLS`, as in OpenAI's Batch API.
        body: the request, as its URL defines it.
        file: the file that it is from, in a job of several; else "".
    """

    index: int
    line: int
    custom_id: str
    url: str
    body: dict[str, Any]
    file: str = ""

    def to_json(self) -> str:
        """The row as it is stored; its index is the key it is stored under."""
        row = {"line": self.line, "custom_id": self.custom_id, "url": self.url, "body": self.body}
        return orjson.dumps({"file": self.file, **row} if self.file else row).decode()

    def request_key(self) -> bytes:
        """What the row asks for, as 16 bytes: the same for rows with equal `url` and `body`."""
        asked = [self.url, self.body]
        try:
            text = orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)
        except TypeError:  # somebody else has put numbers or text into it that orjson refuses
            text = json.dumps(asked, sort_keys=True).encode()
        return hashlib.blake2b(text, digest_size=16).digest()

    def over(self, defaults: dict[str, Any]) -> "Row":
        """The row with these parameters beside its own; where it says something itself, be it null, that holds."""
        return replace(self, body={**defaults, **self.body})

    @classmethod
    def from_json(cls, index: int, text: str) -> "Row":
        """The row stored under `index`.

        Raises:
            ValueError: `to_json` did not write this.
        """
        try:
            row = cls(index=index, **json.loads(text))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"not a row: {error}") from None
        wanted = ((row.line, int), (row.custom_id, str), (row.url, str), (row.body, dict), (row.file, str))
        if not all(isinstance(value, kind) for value, kind in wanted):
            raise ValueError("not a row: a field has the wrong type")
        row.custom_id.encode()  # a lone surrogate raises a ValueError, too
        return row


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine made of a row: OpenAI's response body for the row's URL, and what it cost."""

    body: dict[str, Any]
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class RowFault:
    """Why a row has no answer and never will: the row itself is at fault.

    Attributes:
        code: a short machine-readable word, such as `invalid_json` or `context_length_exceeded`.
        message: one sentence for the user.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a row: its line in the results file, and what the job's counters gain by it."""

    index: int | str
    line: str
    failed: bool
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @classmethod
    def answered(cls, row: Row, answer: Answer) -> "Outcome":
        """A success line in the shape of OpenAI's batch output file.

        Raises:
            TypeError, ValueError: the answer cannot be written as JSON in UTF-8 (it must not reach Redis half-way).
        """
        response = {"status_code": 200, "request_id": _new_id("req"), "body": answer.body}
        line = _result_line(row.custom_id, response, None)
        line.encode()
        return cls(row.index, line, False, int(answer.prompt_tokens), int(answer.completion_tokens))

    @classmethod
    def failed_row(
        cls, index: int | str, line: int | None, custom_id: str | None, fault: RowFault, file: str = ""
    ) -> "Outcome":
        """An error line; `error.line` says which line is meant; in a job of several files, `error.file` of which."""
        message = fault.message.encode(errors="replace").decode()
        error = {"code": fault.code, "message": message, "line": line, **({"file": file} if file else {})}
        return cls(index, _result_line(custom_id, None, error), failed=True)


def _result_line(custom_id: str | None, response: dict[str, Any] | None, error: dict[str, Any] | None) -> str:
    return dumps({"id": _new_id("batch_req"), "custom_id": custom_id, "response": response, "error": error})


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


def dumps(value: Any) -> str:
    """Compact JSON on one line; text stays readable (no \\u escapes, so U+2028 stays U+2028).

    Raises:
        TypeError, ValueError: it is no JSON (NaN and infinities are none either).
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_defaults(text: str) -> dict[str, Any] | None:
    """A job's defaults as they are stored (`""`: it has none); None when they are damaged."""
    try:
        asked = json.loads(text or "{}")
    except ValueError:
        return None
    return asked if isinstance(asked, dict) else None
