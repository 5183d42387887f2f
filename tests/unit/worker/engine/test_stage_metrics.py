"""The two-batch engine's rings, and the presence of its drafter, as Prometheus metrics."""

import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from worker.engine.stage_metrics import StageMetrics
from worker.minedraft.presence import FILE, Presence, State
from worker.minedraft.stages import DRAFTER, Stage, StageClock, ring_path, verifier_name
from worker.strategies.seam import Way

MS = 1_000_000


class Ranks:
    """An engine's clocks, in a time of our own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capacity: int = 4096) -> None:
        folder.mkdir()
        self._now_ns = 0
        monkeypatch.setattr(time, "monotonic_ns", lambda: self._now_ns)
        self._verifiers = [StageClock(ring_path(folder, verifier_name(rank)), capacity) for rank in (0, 1)]
        self._drafter = StageClock(ring_path(folder, DRAFTER))

    def verify(self, call: int, begin_ms: int, end_ms: int, way: Way = Way.TWO, asked: int = 3) -> None:
        """All ranks verify, waiting 5 ms before and sampling for the last 2 ms: two requests with 3 and 1 drafts."""
        for clock in self._verifiers:
            clock.begin(call)
            self._stage(clock, Stage.RECV, begin_ms - 5, begin_ms)
            self._stage(clock, Stage.PREPARE, begin_ms, begin_ms + 1)
            self._stage(clock, Stage.FORWARD, begin_ms + 1, end_ms - 2)
            self._stage(clock, Stage.SAMPLE, end_ms - 2, end_ms)
            clock.count(requests=2, tokens=6, prefill=0, asked=asked, way=way)
            clock.drafts([3, 1], [2, 1])
            clock.commit()

    def draft(self, call: int, begin_ms: int, end_ms: int) -> None:
        self._drafter.begin(call)
        self._stage(self._drafter, Stage.DRAFT, begin_ms, end_ms)
        self._drafter.commit()

    def _stage(self, clock: StageClock, stage: Stage, begin_ms: int, end_ms: int) -> None:
        self._now_ns = begin_ms * MS
        clock.start(stage)
        self._now_ns = end_ms * MS
        clock.stop(stage)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def seconds(value: float) -> object:
    return pytest.approx(value, abs=1e-9)


def test_each_stage_of_each_rank_is_timed(
    tmp_path: Path, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, ranks = StageMetrics(registry), Ranks(tmp_path / "a", monkeypatch)
    metrics.follow(tmp_path / "a")
    ranks.verify(1, 100, 140)
    ranks.verify(2, 150, 190)
    ranks.draft(1, 150, 160)
    metrics.update()
    metrics.update()
    for rank, stage, count, total in (
        ("verifier_0", "recv", 2, 0.010),
        ("verifier_0", "forward", 2, 0.074),
        ("verifier_1", "sample", 2, 0.004),
        ("drafter", "draft", 1, 0.010),
    ):
        labels = {"rank": rank, "stage": stage}
        assert registry.get_sample_value("minedraft_stage_seconds_count", labels) == count
        assert registry.get_sample_value("minedraft_stage_seconds_sum", labels) == seconds(total)
    never = {"rank": "verifier_0", "stage": "draft"}
    assert registry.get_sample_value("minedraft_stage_seconds_count", never) is None


def test_a_batch_is_counted_once_whatever_the_number_of_ranks(
    tmp_path: Path, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, ranks = StageMetrics(registry), Ranks(tmp_path / "a", monkeypatch)
    metrics.follow(tmp_path / "a")
    ranks.verify(1, 100, 140)
    ranks.verify(2, 150, 190)
    ranks.draft(1, 150, 160)
    metrics.update()
    value = registry.get_sample_value
    assert (value("minedraft_verify_seconds_count"), value("minedraft_draft_seconds_count")) == (2, 1)
    assert (value("minedraft_verify_seconds_sum"), value("minedraft_draft_seconds_sum")) == (
        seconds(0.080),
        seconds(0.010),
    )
    assert (value("minedraft_batch_requests_count"), value("minedraft_batch_requests_sum")) == (2, 4)
    assert (value("minedraft_batch_tokens_count"), value("minedraft_batch_tokens_sum")) == (2, 12)
    assert (value("minedraft_batch_drafts_count"), value("minedraft_batch_drafts_sum")) == (2, 8)
    assert (value("minedraft_asked_drafts_count"), value("minedraft_asked_drafts_sum")) == (2, 6)
    for name, counts in (("drafted", (4, 2, 2, None)), ("accepted", (4, 2, None, None))):
        for position, count in enumerate(counts, start=1):
            assert value(f"minedraft_{name}_tokens_total", {"position": str(position)}) == count


@pytest.mark.parametrize("every", [1, 2, 5])
def test_calls_are_counted_by_way_and_changes_by_what_was_changed_to(
    every: int, tmp_path: Path, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = StageMetrics(registry)
    choices = [(Way.TWO, 3), (Way.TWO, 3), (Way.ONE, 3), (Way.ONE, 0), (Way.AHEAD, 4), (Way.AHEAD, 4)]
    for engine in ("a", "b"):  # what the next one begins with is no change
        ranks = Ranks(tmp_path / engine, monkeypatch)
        metrics.follow(tmp_path / engine)
        for call, (way, asked) in enumerate(choices, 1):
            ranks.verify(call, 100 * call, 100 * call + 50, way, asked)
            if call % every == 0:
                metrics.update()
    metrics.follow(tmp_path / "c")
    calls = {way: registry.get_sample_value("minedraft_calls_total", {"way": way}) for way in ("two", "one", "ahead")}
    assert calls == {"two": 4, "one": 4, "ahead": 4}
    decisions = {
        (sample.labels["way"], sample.labels["drafts"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "minedraft_decisions_total"
    }
    assert decisions == {("one", "3"): 2, ("one", "0"): 2, ("ahead", "4"): 2}


@pytest.mark.parametrize("every", [1, 2, 3, 100])
def test_hidden_seconds_do_not_depend_on_when_the_rings_are_read(
    every: int, tmp_path: Path, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, ranks = StageMetrics(registry), Ranks(tmp_path / "a", monkeypatch)
    metrics.follow(tmp_path / "a")
    for call in range(1, 11):
        # t = 30 of which 25 ms lie in this pass, and 5 ms in the gap before it.
        ranks.draft(call - 1, 50 * call - 5, 50 * call + 25)
        if call % every == 0:
            metrics.update()
        ranks.verify(call, 50 * call, 50 * call + 40)
    metrics.update()
    assert registry.get_sample_value("minedraft_hidden_seconds_total") == seconds(0.250)


def test_a_new_engine_starts_over_and_nothing_of_the_old_one_is_missed(
    tmp_path: Path, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, old = StageMetrics(registry), Ranks(tmp_path / "old", monkeypatch)
    metrics.follow(tmp_path / "old")
    old.verify(1, 100, 140)
    metrics.update()
    old.verify(2, 150, 190)
    old.draft(1, 180, 195)  # held back: the engine dies before another pass ends
    metrics.follow(tmp_path / "new")
    value = registry.get_sample_value
    assert value("minedraft_verify_seconds_count") == 2
    assert value("minedraft_hidden_seconds_total") == seconds(0.010)

    metrics.update()  # its folder is not there yet
    new = Ranks(tmp_path / "new", monkeypatch)
    old.verify(3, 200, 240)
    new.verify(1, 300, 340)
    new.draft(0, 310, 330)
    metrics.update()
    assert value("minedraft_verify_seconds_count") == 3
    assert value("minedraft_hidden_seconds_total") == seconds(0.030)


def test_lost_records_are_counted(tmp_path: Path, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, ranks = StageMetrics(registry), Ranks(tmp_path / "a", monkeypatch, capacity=8)
    metrics.follow(tmp_path / "a")
    for last in (20, 40):
        for call in range(last - 19, last + 1):
            ranks.verify(call, 100 * call, 100 * call + 50)
        metrics.update()
    # Each of two ranks: 20 records at a time, of which seven can be read.
    assert registry.get_sample_value("minedraft_stage_records_lost_total") == 2 * 2 * 13
    assert registry.get_sample_value("minedraft_verify_seconds_count") == 14


def test_without_an_engine_there_is_nothing_to_read(registry: CollectorRegistry) -> None:
    StageMetrics(registry).update()
    assert registry.get_sample_value("minedraft_verify_seconds_count") == 0


def drafters(registry: CollectorRegistry) -> tuple[float | None, ...]:
    """Whether one is there; losses and joins so far."""
    names = ("up", "losses_total", "joins_total")
    return tuple(registry.get_sample_value(f"minedraft_drafter_{name}") for name in names)


def test_a_drafter_is_up_from_when_it_has_started_and_losses_and_joins_are_counted_once(
    tmp_path: Path, registry: CollectorRegistry
) -> None:
    metrics = StageMetrics(registry)
    metrics.follow(tmp_path)
    drafter = Presence(tmp_path)
    said = []
    for happens in (
        lambda: None,
        lambda: setattr(drafter, "state", State.PRESENT),
        drafter.lose,
        lambda: setattr(drafter, "state", State.WAITING),
        lambda: setattr(drafter, "state", State.JOINING),
        drafter.join,
        drafter.give_up,
        drafter.lose,
    ):
        happens()
        metrics.update()
        metrics.update()
        said.append(drafters(registry))
    assert said == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (1, 1, 0), (1, 1, 1), (1, 1, 1), (0, 2, 1)]


def test_losses_and_joins_of_the_engines_before_stay_counted(tmp_path: Path, registry: CollectorRegistry) -> None:
    metrics = StageMetrics(registry)
    for name, losses in (("old", 2), ("new", 1)):
        (tmp_path / name).mkdir()
        drafter = Presence(tmp_path / name)
        drafter.state = State.PRESENT
        metrics.follow(tmp_path / name)
        for _ in range(losses):
            drafter.lose()
            drafter.join()
    metrics.follow(tmp_path / "newest")
    assert drafters(registry) == (0, 3, 3)


def test_reading_does_not_make_what_is_the_engines_to_make(tmp_path: Path, registry: CollectorRegistry) -> None:
    metrics = StageMetrics(registry)
    metrics.follow(tmp_path)
    metrics.update()
    assert not (tmp_path / FILE).exists()
    (tmp_path / FILE).touch()  # it has made it, and not filled it yet
    metrics.update()
    assert drafters(registry) == (0, 0, 0)
    Presence(tmp_path).state = State.PRESENT
    metrics.update()
    assert drafters(registry) == (1, 0, 0)
