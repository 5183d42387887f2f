"""What a worker tells of its work, from real metrics."""

import pytest
from prometheus_client import CollectorRegistry, Counter

from producer.record.models import Outcome
from worker.engine.stage_metrics import StageMetrics
from worker.metrics import Metrics


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_rows_and_tokens(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    metrics.row_ended(Outcome(0, "{}", False, 3, 20))
    metrics.row_ended(Outcome(1, "{}", False, 4, 30))
    metrics.row_ended(Outcome(2, "{}", True))
    with metrics.rows_in_flight.track_inprogress():
        said = metrics.stats()
    assert (said.answered, said.failed, said.in_flight) == (2, 1, 1)
    assert (said.prompt_tokens, said.completion_tokens) == (7, 50)
    assert (said.drafted, said.accepted, said.verify_seconds, said.draft_seconds, said.hidden_seconds) == (
        0,
        0,
        0,
        0,
        0,
    )


def test_it_says_how_long_it_is_up(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    first, second = metrics.stats(), metrics.stats()
    assert 0 <= first.seconds < second.seconds


def test_the_two_batch_engine_is_heard_though_it_starts_later(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    stages = StageMetrics(registry)
    for position, drafted, accepted in (("1", 10, 7), ("2", 10, 4)):
        stages._drafted.labels(position=position).inc(drafted)
        stages._accepted.labels(position=position).inc(accepted)
    stages._verify.observe(0.5)
    stages._verify.observe(0.25)
    stages._draft.observe(0.5)
    stages._hidden.inc(0.125)
    said = metrics.stats()
    assert (said.drafted, said.accepted) == (20, 11)
    assert (said.verify_seconds, said.draft_seconds, said.hidden_seconds) == (0.75, 0.5, 0.125)


def test_vllms_own_speculation_is_counted_by_vllm(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    for name, count in (("draft", 12), ("accepted", 5)):
        counter = Counter(f"vllm:spec_decode_num_{name}_tokens", "as vLLM has it", ["engine"], registry=registry)
        counter.labels(engine="0").inc(count)
    assert (metrics.stats().drafted, metrics.stats().accepted) == (12, 5)
    StageMetrics(registry)._drafted.labels(position="1").inc(11)
    assert metrics.stats().drafted == 11  # the same drafts, seen by both
