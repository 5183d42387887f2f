"""What a two-batch engine says of its stages and of its drafter, as Prometheus metrics."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from worker.minedraft.measures import HiddenTime, Spans, draft_spans, stage_spans, verify_spans
from worker.minedraft.presence import Presence, State
from worker.minedraft.stages import DRAFTER, MAX_DRAFTS, RECORD, SUFFIX, Records, Stage, StageReader, verifier_name
from worker.strategies.seam import Way

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_REQUESTS = tuple(2**power for power in range(11))  # 1 to 1,024
_TOKENS = tuple(2**power for power in range(17))  # 1 to 65,536
_NS_PER_S = 1e9
#: All verifier ranks see the same batches; what is about the batch and not about the rank is counted on this one.
_FIRST = verifier_name(0)


class StageMetrics:
    """One set per worker process, fed from the folder of one engine at a time.

    The hidden share is rate(minedraft_hidden_seconds_total) over the smaller of rate(minedraft_draft_seconds_sum) and
    rate(minedraft_verify_seconds_sum).
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._stage = Histogram(
            "minedraft_stage_seconds",
            "Time of each stage of a call, by rank: `verifier_N`, `drafter`, or `engine`, which schedules.",
            ["rank", "stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._verify = Histogram(
            "minedraft_verify_seconds",
            "V: time to verify a batch, without waiting for its drafts (verifier_0).",
            buckets=_SECONDS,
            registry=registry,
        )
        self._draft = Histogram(
            "minedraft_draft_seconds", "t: time to draft for a batch.", buckets=_SECONDS, registry=registry
        )
        self._hidden = Counter(
            "minedraft_hidden_seconds",
            "Draft time while a batch was being verified; a draft is counted when a later verification has ended.",
            registry=registry,
        )
        self._drafted = Counter(
            "minedraft_drafted_tokens",
            "Drafts that were verified, by position from 1.",
            ["position"],
            registry=registry,
        )
        self._accepted = Counter(
            "minedraft_accepted_tokens",
            "Drafts that were accepted, by position from 1.",
            ["position"],
            registry=registry,
        )
        self._requests = Histogram(
            "minedraft_batch_requests", "Requests of a batch that is not empty.", buckets=_REQUESTS, registry=registry
        )
        self._tokens = Histogram(
            "minedraft_batch_tokens",
            "Tokens scheduled for a batch that is not empty, drafts included.",
            buckets=_TOKENS,
            registry=registry,
        )
        self._verified = Histogram(
            "minedraft_batch_drafts",
            "Drafts verified in a batch that is not empty.",
            buckets=(0, *_TOKENS),
            registry=registry,
        )
        self._asked = Histogram(
            "minedraft_asked_drafts",
            "Tokens drafted for each row in a call, as was decided before it.",
            buckets=range(MAX_DRAFTS + 1),
            registry=registry,
        )
        self._calls = Counter(
            "minedraft_calls",
            "Calls with requests, by how rows took turns: `two` batches, `one` batch, or one drafted `ahead` for.",
            ["way"],
            registry=registry,
        )
        self._decisions = Counter(
            "minedraft_decisions",
            "Changes of how rows take turns or of the tokens drafted for each, by what was changed to.",
            ["way", "drafts"],
            registry=registry,
        )
        self._lost = Counter(
            "minedraft_stage_records_lost",
            "Records of calls, of any rank, that were overwritten before they were read: the others here miss them.",
            registry=registry,
        )
        self._drafter_up = Gauge(
            "minedraft_drafter_up",
            "1 while the engine has a drafter, 0 while rows go on without drafts.",
            registry=registry,
        )
        self._losses = Counter(
            "minedraft_drafter_losses", "Drafters that ended while they took part.", registry=registry
        )
        self._joins = Counter(
            "minedraft_drafter_joins", "Drafters that took the place of one that was lost.", registry=registry
        )
        self._folder: Path | None = None
        self._presence: Presence | None = None
        self._counted = (0, 0)  # of this engine's losses and joins
        self._readers: dict[str, StageReader] = {}
        self._overlap = HiddenTime()
        self._chosen: tuple[int, int] | None = None  # way and drafts of this engine's last call

    def follow(self, folder: Path) -> None:
        """Count what the engine before has left, and read what a new engine leaves in `folder` from now on."""
        self.update()
        self._hidden.inc(self._overlap.rest() / _NS_PER_S)
        self._folder, self._readers, self._overlap, self._chosen = folder, {}, HiddenTime(), None
        self._presence, self._counted = None, (0, 0)
        self._drafter_up.set(0)

    def update(self) -> None:
        """Take in what the ranks have recorded since the last call; to be called about every second.

        Raises:
            ValueError: a file in the folder is not a ring of this version.
        """
        if self._folder is not None:
            for path in self._folder.glob(f"*{SUFFIX}"):  # the ranks make them one by one while they start
                self._readers.setdefault(path.stem, StageReader(path))
            self._look_for_the_drafter(self._folder)
        records = {rank: self._read(reader) for rank, reader in self._readers.items()}
        for rank, of_rank in records.items():
            for stage in Stage:
                if seconds := _seconds(stage_spans(of_rank, stage)):
                    _observe(self._stage.labels(rank=rank, stage=stage.name.lower()), seconds)
        none = np.empty(0, RECORD)
        verifier, drafter = records.get(_FIRST, none), records.get(DRAFTER, none)
        self._count_batches(verifier)
        self._count_choices(verifier)
        _observe(self._verify, _seconds(verify_spans(verifier)))
        _observe(self._draft, _seconds(draft_spans(drafter)))
        self._hidden.inc(self._overlap.add(verifier, drafter) / _NS_PER_S)

    def _look_for_the_drafter(self, folder: Path) -> None:
        self._presence = self._presence or Presence.seen_in(folder)
        if self._presence is None:
            return
        now = (self._presence.losses, self._presence.joins)
        for counter, count, before in zip((self._losses, self._joins), now, self._counted, strict=True):
            counter.inc(count - before)
        self._counted = now
        self._drafter_up.set(self._presence.state is not State.ABSENT)

    def _read(self, reader: StageReader) -> Records:
        lost = reader.lost
        records = reader.read()
        self._lost.inc(reader.lost - lost)
        return records

    def _count_batches(self, verifier: Records) -> None:
        _observe(self._requests, verifier["requests"].tolist())
        _observe(self._tokens, verifier["tokens"].tolist())
        _observe(self._verified, verifier["drafted"].tolist())
        _observe(self._asked, verifier["asked"].tolist())
        for counter, field in ((self._drafted, "drafted_at"), (self._accepted, "accepted")):
            for position, count in enumerate(verifier[field].sum(axis=0).tolist(), start=1):
                if count:
                    counter.labels(position=str(position)).inc(count)

    def _count_choices(self, verifier: Records) -> None:
        for chosen in zip(verifier["way"].tolist(), verifier["asked"].tolist(), strict=True):
            way = Way(chosen[0]).name.lower()
            self._calls.labels(way=way).inc()
            if self._chosen not in (None, chosen):
                # No engine drafts more: so there are few series.
                self._decisions.labels(way=way, drafts=str(min(chosen[1], MAX_DRAFTS))).inc()
            self._chosen = chosen


def _observe(histogram: Histogram, values: Iterable[float]) -> None:
    for value in values:
        histogram.observe(value)


def _seconds(spans: Spans) -> list[float]:
    seconds: list[float] = ((spans[:, 1] - spans[:, 0]) / _NS_PER_S).tolist()
    return seconds
