"""What was asked and what was answered: a submitted file, and result lines from a file or from Redis."""

import heapq
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from producer.intake.digest import JobDigest
from producer.intake.lines import Line, TooLong
from producer.intake.rows import Reject, parse_line
from producer.intake.sources import SourceError, open_source
from producer.record.models import TARGET, Row
from worker.verify.comparable import Kind, kind_of


class GivenError(Exception):
    """The files, or the job, are not what can be compared; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The submitted file, without its rows.

    Attributes:
        kinds: of each row, by `custom_id`.
        digest: of all lines, as `producer submit` makes it.
        defaults: what its rows ask for that do not say otherwise.
    """

    kinds: Mapping[str, Kind]
    digest: JobDigest
    defaults: dict[str, Any] = field(default_factory=dict)

    def is_job(self, identity: str, model: str) -> bool:
        """Whether this is what was submitted, byte for byte of what it means.

        Args:
            identity: the job's.
            model: what the job is for by now: one for any model is bound to one when its first row is taken.
        """
        return identity in (
            self.digest.hexdigest(name, self.defaults, dedupe=dedupe)
            for name in (model, TARGET)
            for dedupe in (False, True)
        )


@dataclass(frozen=True, slots=True)
class Given:
    """A row with its answer (a response body)."""

    row: Row
    kind: Kind
    answer: Mapping[str, Any]


@dataclass(slots=True)
class Chooser:
    """Counts result lines, one after the other, and keeps the answers of some: the same ones in whatever order.

    Attributes:
        submitted: what was asked.
        rows: how many to keep, at most.
        seed: another one keeps others.
        answered: rows with an answer.
        failed: rows with an error.
        free: answered rows that were sampled without a seed.
        foreign: answered rows that the submitted file does not have.
        models: whose answers there are.
    """

    submitted: Submitted
    rows: int
    seed: int
    answered: int = 0
    failed: int = 0
    free: int = 0
    foreign: int = 0
    models: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)
    _kept: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Take in the next result line.

        Raises:
            GivenError: it is none, or of a row that was there before.
        """
        custom_id, body = _read_result(line)
        if body is None:
            self.failed += 1
            return
        assert custom_id is not None
        if custom_id in self._seen:
            raise GivenError(f"there are two answers to row {custom_id!r}")
        self._seen.add(custom_id)
        self.answered += 1
        self.models.add(str(body.get("model")))
        kind = self.submitted.kinds.get(custom_id)
        if kind is None:
            self.foreign += 1
        elif kind is Kind.FREE:
            self.free += 1
        else:
            place = _place(self.seed, custom_id), custom_id, body
            # A heap has its smallest first: the one that goes when there are too many.
            (heapq.heappush if len(self._kept) < self.rows else heapq.heappushpop)(self._kept, place)

    @property
    def comparable(self) -> int:
        """Answered rows that plain decoding can be held against."""
        return self.answered - self.free - self.foreign

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """The answers that are kept, by `custom_id`."""
        return {custom_id: body for _, custom_id, body in self._kept}


def read_submitted(path: Path, default_temperature: float, defaults: dict[str, Any] | None = None) -> Submitted:
    """Read the submitted file once.

    Args:
        path: the file.
        default_temperature: of a row that names none.
        defaults: the job's.

    Raises:
        GivenError: it cannot be read.
    """
    digest, kinds, asked = JobDigest(), {}, defaults or {}
    for line, row in _lines(path):
        if isinstance(row, Reject):
            digest.update_refused(line)
            continue
        digest.update(row.to_json().encode())
        kinds[row.custom_id] = kind_of(row.over(asked).body, default_temperature)
    return Submitted(kinds, digest, asked)


def rows_of(path: Path, submitted: Submitted, chosen: Mapping[str, Mapping[str, Any]]) -> list[Given]:
    """Read the submitted file again, for the rows whose answers were kept; in its order.

    Raises:
        GivenError: it cannot be read.
    """
    return [
        Given(row.over(submitted.defaults), submitted.kinds[row.custom_id], chosen[row.custom_id])
        for _, row in _lines(path)
        if isinstance(row, Row) and row.custom_id in chosen
    ]


def result_lines(path: Path) -> Iterator[str]:
    """The lines of a results file.

    Raises:
        GivenError: it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            # No limit: what is in a results file was in memory before.
            for raw in stream:
                if not raw.isspace():
                    yield raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise GivenError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def check_results(path: Path) -> None:
    """See that a file holds results, each of another row.

    Raises:
        GivenError: it does not, or cannot be read.
    """
    counted = Chooser(Submitted({}, JobDigest()), rows=1, seed=0)
    for line in result_lines(path):
        counted.add(line)


def check_models(models: Collection[str], served: str) -> None:
    """See that the answers are of the model that will be asked.

    Raises:
        GivenError: they are another one's.
    """
    if others := sorted(set(models) - {served}):
        raise GivenError(
            f"the answers are of model {others[0]!r}, and this would ask {served!r}: give --model and "
            "--served-model-name as the job's workers had them"
        )


def _lines(path: Path) -> Iterator[tuple[Line | TooLong, Row | Reject]]:
    """Each line of a submitted file that is not blank, and what it holds."""
    try:
        for index, line in enumerate(open_source([str(path)]).lines()):
            yield line, parse_line(line, index)
    except SourceError as error:
        raise GivenError(str(error)) from None
    except OSError as error:
        raise GivenError(f"cannot read {path}: {error.strerror or error}") from None


def _read_result(line: str) -> tuple[str | None, dict[str, Any] | None]:
    """Whose result this is, and the answer; None for a row that failed."""
    try:
        result = json.loads(line)
        custom_id, response = result["custom_id"], result["response"]
        if result["error"] is not None or response["status_code"] != 200:
            return custom_id, None
        body = dict(response["body"])
        if not (isinstance(custom_id, str) and _is_answer(body)):
            raise TypeError
        return custom_id, body
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise GivenError(f"this is no line of a results file: {line[:60]!r}") from None


def _is_answer(body: dict[str, Any]) -> bool:
    """Whether a response body has the parts that are compared, so far as they must have a certain form.

    Raises:
        TypeError, KeyError, AttributeError: it has not.
    """
    dict(body.get("usage") or {})
    indices = [choice["index"] for choice in body["choices"]]
    for choice in body["choices"]:
        message = choice.get("message")
        if not isinstance(choice["text"] if message is None else message.get("content") or "", str):
            return False
        if {type(token) for token in choice.get("token_ids") or ()} - {int}:
            return False
        if not all(isinstance(call, dict) for call in (message or {}).get("tool_calls") or ()):
            return False
    return len(set(indices)) == len(indices) and {type(index) for index in indices} <= {int}


def _place(seed: int, custom_id: str) -> int:
    """Where a row stands in line to be chosen: its name and the seed decide, not who else is there."""
    return int.from_bytes(blake2b(f"{seed} {custom_id}".encode(), digest_size=8).digest())
