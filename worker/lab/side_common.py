"""What the sides of a bench have in common: what they are told, what they answer, vLLM's own measure of a row."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from worker.engine.vllm_args import VllmOptions
from worker.lab.result import Turn
from worker.minedraft.classes import Ranks
from worker.minedraft.stages import Records
from worker.strategies.seam import Strategy

#: From a row's first token to its last, over all tokens but the first, in seconds.
_TIME_PER_TOKEN = "vllm:request_time_per_output_token_seconds"  # noqa: S105 - tokens of text


@dataclass(frozen=True, slots=True)
class Told:
    """What a side is.

    Attributes:
        program: `engine`, `queue` (the engine behind Redis and a worker) or `run-batch` (vLLM's own).
        options: of its engine.
        rows: the file of rows that it answers.
        title: of what it records, for people.
        virtual: whether its devices are imagined.
    """

    program: str
    options: VllmOptions
    rows: Path
    title: str
    virtual: bool

    def to_json(self) -> str:
        """In one line."""
        return json.dumps({**asdict(self), "rows": str(self.rows)})

    @classmethod
    def from_json(cls, text: str) -> "Told":
        """What `to_json` wrote."""
        fields = json.loads(text)
        given = fields["options"]
        tuples = {name: tuple(given[name]) for name in ("verifier_cpus", "drafter_cpus")}
        classes, strategy = Ranks(**given["ranks"]), Strategy(**given["strategy"])
        options = VllmOptions(**{**given, **tuples, "ranks": classes, "strategy": strategy})
        return cls(**{**fields, "options": options, "rows": Path(fields["rows"])})


@dataclass(frozen=True, slots=True)
class Answered:
    """One turn: what was measured, a digest of each text in the order of the rows, and what the ranks recorded."""

    turn: Turn
    texts: list[str]
    records: Mapping[str, Records] = field(default_factory=dict)


class TokenTimes:
    """The mean time per output token of the requests since the last call."""

    def __init__(self) -> None:
        self._seconds = self._count = 0.0

    def take(self) -> float | None:
        """In ms; None when no request with two tokens has ended."""
        samples = [sample for family in REGISTRY.collect() for sample in family.samples]
        seconds = sum(sample.value for sample in samples if sample.name == f"{_TIME_PER_TOKEN}_sum")
        count = sum(sample.value for sample in samples if sample.name == f"{_TIME_PER_TOKEN}_count")
        taken = 1000 * (seconds - self._seconds) / (count - self._count) if count > self._count else None
        self._seconds, self._count = seconds, count
        return taken


class RowFailed(Exception):  # noqa: N818 - a finding about the rows
    """A row has no answer: nothing can be compared."""


def body_of(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer in a line of results.

    Raises:
        RowFailed: it is an error.
    """
    response, error = line.get("response") or {}, line.get("error")
    body: Mapping[str, Any] = response.get("body") or {}
    if error or "choices" not in body:
        raise RowFailed(f"row {line.get('custom_id')} failed: {error or body}")
    return body


def texts_of(bodies: Iterable[Mapping[str, Any]]) -> list[str]:
    """A digest of the text of each answer."""
    digests = []
    for body in bodies:
        choice = body["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        digests.append(hashlib.sha256((text or "").encode()).hexdigest()[:16])
    return digests
