"""What the worker counts about itself, as Prometheus metrics beside vLLM's own; every name is here."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, Info

from producer.record.fleet import WorkerCard
from producer.record.models import Outcome
from producer.record.trouble import Trouble
from worker.numbers import Numbers

_WRITE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """One set per worker process; labels are few and bounded (never a job, a row or a prompt)."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._rows = Counter("minedraft_rows", "Rows whose end was written to Redis.", ["outcome"], registry=registry)
        self.succeeded = self._rows.labels(outcome="answered")
        self.failed = self._rows.labels(outcome="failed")
        self._tokens = Counter(
            "minedraft_tokens",
            "Tokens of the answered rows: read from prompts, and generated.",
            ["kind"],
            registry=registry,
        )
        self.prompt_tokens = self._tokens.labels(kind="prompt")
        self.completion_tokens = self._tokens.labels(kind="completion")
        self._claims = Counter(
            "minedraft_shard_claims",
            "Tries to claim a shard; `empty` found nothing to do.",
            ["result"],
            registry=registry,
        )
        self.claimed = self._claims.labels(result="claimed")
        self.claimed_nothing = self._claims.labels(result="empty")
        self.leases_lost = Counter(
            "minedraft_leases_lost",
            "Shards that were taken over while this worker had them.",
            registry=registry,
        )
        self.shards_reaped = Counter(
            "minedraft_shards_reaped",
            "Shards of dead or frozen workers that this worker made claimable again.",
            registry=registry,
        )
        self.engine_restarts = Counter(
            "minedraft_engine_restarts", "Engines started in place of a dead one.", registry=registry
        )
        self.engine_up = Gauge("minedraft_engine_up", "1 while the engine can answer rows.", registry=registry)
        self.rows_in_flight = Gauge(
            "minedraft_rows_in_flight", "Rows given to the engine and not answered yet.", registry=registry
        )
        self.queue_shards = Gauge(
            "minedraft_queue_shards",
            "Shards of this worker's model that nobody has claimed (the queue's depth).",
            registry=registry,
        )
        self.queue_tokens = Gauge(
            "minedraft_queue_tokens",
            "Tokens in arq's queue, those of running shards included.",
            registry=registry,
        )
        self.result_write_seconds = Histogram(
            "minedraft_result_write_seconds",
            "Time to write a batch of results to Redis, tries that failed included.",
            buckets=_WRITE_BUCKETS,
            registry=registry,
        )
        self.redis_up = Gauge(
            "minedraft_redis_up", "0 while Redis is away; no rows are claimed then.", registry=registry
        )
        self.redis_errors = Counter(
            "minedraft_redis_errors", "Calls of Redis that failed.", ["kind"], registry=registry
        )
        for kind in Trouble:
            self.redis_errors.labels(kind=kind)
        self.results_waiting = Gauge(
            "minedraft_results_waiting", "Finished rows that are not in Redis yet.", registry=registry
        )
        self.results_spilled = Gauge(
            "minedraft_results_spilled_bytes", "Finished rows that wait on disk for Redis.", registry=registry
        )
        self._worker = Info("minedraft_worker", "What this worker is.", registry=registry)
        self.stats = Numbers(registry)

    def describe(self, card: WorkerCard) -> None:
        """Publish what this worker serves."""
        self._worker.info({"worker_id": card.worker_id, "model": card.model, "mode": card.mode})

    def row_ended(self, outcome: Outcome) -> None:
        """Count a row whose outcome is in Redis."""
        (self.failed if outcome.failed else self.succeeded).inc()
        self.prompt_tokens.inc(outcome.prompt_tokens)
        self.completion_tokens.inc(outcome.completion_tokens)
