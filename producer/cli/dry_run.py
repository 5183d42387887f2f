"""`producer submit --dry-run`: what would become of the input, without a Redis."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from producer.cli.common import ExitCode, escaped, fail, say
from producer.intake.parameters import check_parameters
from producer.intake.reading import DUPLICATE, OnDuplicate, read_rows
from producer.intake.refused import Refused
from producer.intake.rows import Reject
from producer.intake.sources import Source, hint
from producer.record.models import CHAT_URL, Row, RowFault

#: Bad lines that are told unless all are asked for.
SHOWN = 20

#: Characters of JSON about bad lines that stay in memory; more are in a temporary file until they are printed.
_IN_MEMORY = 1 << 20

_LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass
class Survey:
    """What is known of the input so far.

    Attributes:
        rows: all non-blank lines.
        bad: how many of them would be error rows, by the error's code.
        urls: the others, by URL.
        parameters: how many of those ask for what, their job's defaults included.
        characters: in the prompts of those.
        token_ids: the same of prompts that are token ids.
        unlimited: how many of those may fill the context with their answer.
    """

    rows: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    urls: Counter[str] = field(default_factory=Counter)
    parameters: Counter[str] = field(default_factory=Counter)
    characters: int = 0
    token_ids: int = 0
    unlimited: int = 0

    @property
    def invalid(self) -> int:
        """How many rows would be error rows."""
        return self.bad.total()

    def add(self, row: Row) -> None:
        """Count a row that can be asked, its job's defaults in it."""
        self.urls[row.url] += 1
        self.parameters.update(name for name, value in row.body.items() if value is not None)
        self.unlimited += all(row.body.get(name) is None for name in _LIMITS)
        for part in _texts(row):
            if isinstance(part, str):
                self.characters += len(part)
            else:
                self.token_ids += 1


def dry_run(
    source: Source, *, defaults: dict[str, Any], on_duplicate: OnDuplicate, everything: bool, as_json: bool
) -> ExitCode:
    """Read the whole input and tell what is wrong with it.

    Args:
        source: the input.
        defaults: the job's, accepted already.
        on_duplicate: as for a submission.
        everything: tell of every bad line, not only of the first `SHOWN`.
        as_json: print one object instead of text.

    Raises:
        SourceError, OSError: the input cannot be read.
    """
    told = 0
    with SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8") as errors:

        def tell(row: Reject) -> None:
            nonlocal told
            if told == SHOWN and not everything:
                return
            told += 1
            file, fault = row.file or source.name, row.fault
            if as_json:
                error = {"file": file, "line": row.line, "code": fault.code, "message": fault.message}
                errors.write(", " * (told > 1) + escaped(json.dumps(error, ensure_ascii=False)))
            else:
                say(f"{file}:{row.line}: {fault.code}: {fault.message}")

        survey, seems = _surveyed(source, defaults, tell)
        refusal = _refusal(survey, on_duplicate, seems)
        if as_json:
            _print(_object(survey, refusal), errors)
        else:
            _say(survey, source.name, told)
    if refusal:
        return fail(f"{source.name}: {refusal}", ExitCode.USAGE)
    return ExitCode.SOME_ROWS_FAILED if survey.invalid else ExitCode.FINE


def _surveyed(source: Source, defaults: dict[str, Any], tell: Callable[[Reject], None]) -> tuple[Survey, str]:
    """The whole input, and what it seems to be where its first line is no row."""
    survey, seems = Survey(), ""
    for line, read in read_rows(source, "error-row"):
        row = read if isinstance(read, Reject) else _asked(read, defaults)
        if isinstance(row, Reject):
            survey.bad[row.fault.code] += 1
            if not survey.rows:
                seems = hint(getattr(line, "data", b""))
            tell(row)
        else:
            survey.add(row)
        survey.rows += 1
    return survey, seems


def _asked(row: Row, defaults: dict[str, Any]) -> Row | Reject:
    """A row as a worker gets it."""
    if not defaults:
        return row
    row = row.over(defaults)
    try:
        check_parameters(row.url, row.body)
    except Refused as refused:
        fault = RowFault(refused.fault.code, f"by the job's defaults: {refused.fault.message}")
        return Reject(row.index, row.line, row.custom_id, fault, row.file)
    return row


def _texts(row: Row) -> list[Any]:
    """Texts and token ids of what a row asks; what else a message may hold is passed over."""
    if row.url == CHAT_URL:
        parts: list[Any] = []
        for message in row.body["messages"]:
            content = message.get("content")
            several = content if isinstance(content, list) else [content]
            parts += [part.get("text") if isinstance(part, dict) else part for part in several]
        return [part for part in parts if isinstance(part, str)]
    prompt = row.body["prompt"]
    several = prompt if isinstance(prompt, list) else [prompt]
    return [token for part in several for token in (part if isinstance(part, list) else [part])]


def _refusal(survey: Survey, on_duplicate: OnDuplicate, seems: str) -> str:
    """Why all of it would be refused; "" where it would not."""
    if not survey.rows:
        return "there are no rows in it"
    if survey.invalid == survey.rows:
        return f"none of its {survey.rows} rows can be used{seems}"
    if on_duplicate == "refuse" and (double := survey.bad[DUPLICATE]):
        told = "1 row has" if double == 1 else f"{double} rows have"
        return f"{told} the custom_id of an earlier one; --on-duplicate error-row would submit the others"
    return ""


def _say(survey: Survey, name: str, told: int) -> None:
    if survey.invalid > told:
        say(f"and {survey.invalid - told:,} more; --verbose tells all")
    codes = ", ".join(f"{count:,} {code}" for code, count in survey.bad.most_common())
    rows = "1 row" if survey.rows == 1 else f"{survey.rows:,} rows"
    say(f"{name}: {rows}" + (f", {survey.invalid:,} of them refused: {codes}" if codes else ""))
    if not survey.urls:
        return
    urls = ", ".join(f"{count:,} for {url}" for url, count in survey.urls.most_common())
    sizes = f"{survey.characters:,} characters" + f" and {survey.token_ids:,} token ids" * bool(survey.token_ids)
    say(f"{name}: {urls}; prompts of {sizes} in all")
    if survey.unlimited:
        say(f"{name}: {survey.unlimited:,} have no max_tokens: an answer may fill the context")


def _print(about: dict[str, Any], errors: IO[str]) -> None:
    """One object, with the errors that are written in this file."""
    errors.seek(0)
    sys.stdout.write(escaped(json.dumps(about, ensure_ascii=False))[:-1] + ', "errors": [')
    copyfileobj(errors, sys.stdout)
    sys.stdout.write("]}\n")


def _object(survey: Survey, refusal: str) -> dict[str, Any]:
    return {
        "rows": survey.rows,
        "invalid": survey.invalid,
        "by_code": dict(survey.bad.most_common()),
        "by_url": dict(survey.urls.most_common()),
        "by_parameter": dict(survey.parameters.most_common()),
        "without_max_tokens": survey.unlimited,
        "prompt_characters": survey.characters,
        "prompt_token_ids": survey.token_ids,
        "refused": refusal or None,
    }
