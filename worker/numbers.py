"""What a worker tells of its work, read from its own metrics: each number has one source."""

import time
from collections import defaultdict

from prometheus_client import REGISTRY, CollectorRegistry

from producer.record.fleet import WorkerStats

_ROWS, _TOKENS, _IN_FLIGHT = "minedraft_rows_total", "minedraft_tokens_total", "minedraft_rows_in_flight"
_VERIFY, _DRAFT = "minedraft_verify_seconds_sum", "minedraft_draft_seconds_sum"
_HIDDEN = "minedraft_hidden_seconds_total"
#: Drafts as the two-batch engine counts them, and as vLLM does: where both count, they are the same drafts.
_DRAFTED = ("minedraft_drafted_tokens_total", "vllm:spec_decode_num_draft_tokens_total")
_ACCEPTED = ("minedraft_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total")
#: The label by which a sample's values are told apart.
_LABELS = {_ROWS: "outcome", _TOKENS: "kind"}


class Numbers:
    """Reads the metrics of a registry; made when the worker starts."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        names = [_ROWS, _TOKENS, _IN_FLIGHT, _VERIFY, _DRAFT, _HIDDEN, *_DRAFTED, *_ACCEPTED]
        self._registry = registry.restricted_registry(names)  # which reads no others: well below a millisecond
        self._started = time.monotonic()

    def __call__(self) -> WorkerStats:
        """What has been done so far."""
        found: dict[tuple[str, str], float] = defaultdict(float)
        for family in self._registry.collect():
            for sample in family.samples:
                found[sample.name, sample.labels.get(_LABELS.get(sample.name, ""), "")] += sample.value

        def first(names: tuple[str, ...]) -> int:
            return int(next((found[name, ""] for name in names if found[name, ""]), 0))

        return WorkerStats(
            seconds=time.monotonic() - self._started,
            answered=int(found[_ROWS, "answered"]),
            failed=int(found[_ROWS, "failed"]),
            in_flight=int(found[_IN_FLIGHT, ""]),
            prompt_tokens=int(found[_TOKENS, "prompt"]),
            completion_tokens=int(found[_TOKENS, "completion"]),
            drafted=first(_DRAFTED),
            accepted=first(_ACCEPTED),
            verify_seconds=found[_VERIFY, ""],
            draft_seconds=found[_DRAFT, ""],
            hidden_seconds=found[_HIDDEN, ""],
        )
