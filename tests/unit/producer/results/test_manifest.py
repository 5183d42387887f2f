"""The manifest: what it says of a job, its engines and its files."""

import json
from collections import Counter
from typing import Any

from producer.progress import course
from producer.record.jobs import JobStatus
from producer.record.models import JobState
from producer.record.provenance import EngineNote
from producer.results.manifest import WrittenFile, manifest
from producer.results.shapes import Tally

FACTS: dict[str, Any] = {
    "job_id": "abc",
    "state": JobState.COMPLETED,
    "model": "target",
    "name": "rows.jsonl",
    "rows": 80,
    "done": 80,
    "failed": 3,
    "invalid": 2,
    "consumed": 0,
    "attempts_lost": 0,
    "prompt_tokens": 800,
    "completion_tokens": 4000,
    "priority": 0,
    "reason": "",
    "created": 1_700_000_000.0,
    "started": 1_700_000_001.0,
    "ended": 1_700_000_021.0,
}
FILE = WrittenFile("out.jsonl", "results", "openai", 80, 12345, "ab" * 32)


def job(**changed: Any) -> JobStatus:
    return JobStatus(**{**FACTS, **changed})


def note(worker: str, **said: Any) -> EngineNote:
    return EngineNote(worker_id=worker, model="target", mode="psd", **said)


def made(*engines: EngineNote, **changed: Any) -> dict[str, Any]:
    found = manifest(
        job(**changed),
        identity="identity",
        defaults={"temperature": 0},
        engines=engines,
        tally=Tally(80, Counter({"rare": 1, "no": 2})),
        files=[FILE],
        producer="1.2",
        written=1_700_000_030.5,
    )
    assert json.loads(json.dumps(found)) == found
    return found


def test_what_it_says_of_the_job() -> None:
    found = made()
    assert (found["manifest"], found["producer"], found["written"]) == (1, "1.2", "2023-11-14T22:13:50.500+00:00")
    assert found["job"] == {
        "job_id": "abc",
        "name": "rows.jsonl",
        "identity": "identity",
        "state": "completed",
        "model": "target",
        "created": "2023-11-14T22:13:20.000+00:00",
        "started": "2023-11-14T22:13:21.000+00:00",
        "ended": "2023-11-14T22:13:41.000+00:00",
    }
    assert found["rows"] == {
        "submitted": 80,
        "written": 80,
        "failed": 3,
        "refused": 2,
        "error_codes": {"no": 2, "rare": 1},
        "consumed": 0,
    }
    assert list(found["rows"]["error_codes"]) == ["no", "rare"], "the most frequent first"
    assert found["tokens"] == {"prompt": 800, "completion": 4000}
    assert found["sampling"] == {"temperature": 0}
    assert found["files"][0] == {
        "name": "out.jsonl",
        "holds": "results",
        "format": "openai",
        "lines": 80,
        "bytes": 12345,
        "sha256": "ab" * 32,
    }
    assert found["throughput"] == {"seconds": 20.0, "rows_per_second": 3.9, "completion_tokens_per_second": 200.0}


def test_engines_add_up() -> None:
    times = {"draft_seconds": 2.0, "verify_seconds": 9.0, "hidden_seconds": 1.0}
    one = note("w1", drafted=100, accepted=60, **times, versions={"vllm": "1", "torch": "2"})
    times = {"draft_seconds": 9.0, "verify_seconds": 2.0, "hidden_seconds": 2.0}
    two = note("w2", drafted=300, accepted=100, **times, versions={"vllm": "3"})
    found = made(one, two)
    assert (found["acceptance_rate"], found["overlap"], found["lossless"]) == (0.4, 0.75, True)
    seen = course.ended(job(), [one, two])
    assert (seen.acceptance, seen.overlap) == (0.4, 0.75), "what `watch` says"
    assert found["versions"] == {"torch": ["2"], "vllm": ["1", "3"]}
    assert [each["worker_id"] for each in found["engines"]] == ["w1", "w2"]
    assert not made(one, note("w3", lossless=False))["lossless"]


def test_what_there_is_nothing_of_is_null() -> None:
    found = made(note("w1"), started=None, ended=None, state=JobState.RUNNING)
    assert [found[name] for name in ("acceptance_rate", "overlap", "throughput")] == [None] * 3
    assert (found["job"]["started"], found["lossless"]) == (None, True)
    assert made()["lossless"] is None
