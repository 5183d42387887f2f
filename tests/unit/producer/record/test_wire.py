"""What others say in Redis, read as what it must be."""

import json
from dataclasses import asdict, dataclass, field

import pytest

from producer.record import wire
from producer.record.provenance import EngineNote


@dataclass(frozen=True)
class Said:
    name: str
    count: int
    share: float
    yes: bool = True
    more: dict[str, str] = field(default_factory=dict)


WHOLE = {"name": "a", "count": 1, "share": 0.5, "yes": False, "more": {"b": "c"}}


def test_what_is_said_is_read() -> None:
    assert wire.read(Said, json.dumps(WHOLE)) == Said("a", 1, 0.5, False, {"b": "c"})
    assert wire.read(Said, WHOLE) == wire.read(Said, json.dumps(WHOLE))


def test_older_and_newer_ones_are_understood() -> None:
    assert wire.read(Said, {"name": "a", "count": 1, "share": 2}) == Said("a", 1, 2)
    assert wire.read(Said, WHOLE | {"unheard": "of"}) == wire.read(Said, WHOLE)


@pytest.mark.parametrize(
    "said",
    [
        None,
        "",
        "{",
        "[]",
        "1",
        "[" * 100_000,
        {},
        {"name": "a", "count": 1},
        WHOLE | {"name": 1},
        WHOLE | {"count": "1"},
        WHOLE | {"count": True},
        WHOLE | {"count": 1.5},
        WHOLE | {"share": None},
        WHOLE | {"yes": 1},
        WHOLE | {"more": []},
    ],
)
def test_anything_else_is_nothing(said: object) -> None:
    assert wire.read(Said, said) is None


def test_a_note_survives_the_wire() -> None:
    note = EngineNote(worker_id="w", model="m", mode="psd", versions={"vllm": "1"}, rows=3, hidden_seconds=0.5)
    assert wire.read(EngineNote, json.dumps(asdict(note))) == note
