"""Times of an imagined device, whose work is done later than it is asked for, on the CPU's clock."""

import statistics
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import steps
import torch
from steps import DRAFTS

from worker.minedraft.event_clock import (
    RENEW_NS,
    WIDEST_NS,
    Anchor,
    EventClock,
    first_anchor,
    stage_clock,
)
from worker.minedraft.pipeline import DrafterPipeline, VerifierPipeline
from worker.minedraft.stages import Records, Stage, StageClock, StageReader

MS, US = 1_000_000, 1_000
#: The CPU's clock when the device's says 0.
OFFSET = 7_000_000 * MS


class Device:
    """One that is so far behind what it was asked for, and whose clock may go wrong.

    Attributes:
        cpu: ns of the CPU's clock; every look at it takes `look`.
        behind: after being asked for an event the device is past it so much later, on the stream that computes.
        quick: the same on any other stream.
        drift: ns that the device's clock gains in an ns.
    """

    def __init__(self) -> None:
        self.cpu = OFFSET
        self.behind, self.quick, self.look, self.drift = 5 * MS, 4 * US, US, 0.0
        self.made = 0

    def now(self) -> int:
        self.cpu += self.look
        return self.cpu

    def event(self) -> "Event":
        self.made += 1
        return Event(self)


class Event:
    """As a timing event of CUDA; it counts on being read only when it has been."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.at: int | None = None

    def record(self, stream: object = None) -> None:
        device = self._device
        device.cpu += US
        self.at = device.cpu + (device.behind if stream is None else device.quick)

    def query(self) -> bool:
        assert self.at is not None
        self._device.cpu += US // 2
        return self._device.cpu >= self.at

    def synchronize(self) -> None:
        assert self.at is not None
        self._device.cpu = max(self._device.cpu, self.at)

    def elapsed_time(self, end_event: "Event") -> float:
        assert self.query()
        assert end_event.query()
        assert self.at is not None
        assert end_event.at is not None
        assert end_event.at >= self.at, "an anchor comes before what is told by it"
        return float(np.float32((end_event.at - self.at) * (1 + self._device.drift) / MS))


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank.stages"


@pytest.fixture
def clock(path: Path, device: Device) -> EventClock:
    return made(path, device)


def made(path: Path, device: Device) -> EventClock:
    return EventClock(path, events=device.event, anchors="aside", now=device.now)


def step(clock: EventClock, device: Device, call: int, ms: int = 10) -> list[int]:
    """A call that computes for a while; when the device was at the start and the end of its forward pass."""
    clock.begin(call)
    clock.start(Stage.FORWARD)
    start = device.cpu + device.behind
    device.cpu += ms * MS
    clock.stop(Stage.FORWARD)
    stop = device.cpu + device.behind
    clock.commit()
    return [start, stop]


def forward(records: Records) -> list[list[int]]:
    return [[int(record["begin"][Stage.FORWARD]), int(record["end"][Stage.FORWARD])] for record in records]


def test_a_record_says_when_the_device_was_there(clock: EventClock, path: Path, device: Device) -> None:
    reader, true = StageReader(path), step(clock, device, 1)
    assert not len(reader.read()), "the device is not that far"
    device.cpu += device.behind
    clock.flush()
    (record,) = reader.read()
    assert record["call"] == 1
    np.testing.assert_allclose(forward([record])[0], true, rtol=0, atol=clock.anchor.width)
    assert clock.anchor.width < 20 * US
    assert not any(record["begin"][stage] for stage in Stage if stage != Stage.FORWARD)


def test_calls_are_published_in_order_when_the_device_is_past_them(
    clock: EventClock, path: Path, device: Device
) -> None:
    reader, seen, true = StageReader(path), [], []
    device.behind = 25 * MS
    for call in range(1, 21):
        true.append(step(clock, device, call))
        seen += list(reader.read())
        assert len(seen) == max(0, call - 3)
    device.cpu += device.behind
    clock.flush()
    seen += list(reader.read())
    assert [record["call"] for record in seen] == list(range(1, 21))
    np.testing.assert_allclose(forward(seen), true, rtol=0, atol=20 * US)
    clock.flush()
    assert not len(reader.read())


def test_a_later_event_of_another_stream_holds_the_record_back(clock: EventClock, path: Path, device: Device) -> None:
    """What is sent is sent on a side stream, which may be behind the one that computes."""
    clock.begin(1)
    clock.start(Stage.SEND)
    device.behind = 50 * MS
    clock.stop(Stage.SEND)
    device.behind = 0
    clock.start(Stage.FORWARD)
    clock.stop(Stage.FORWARD)
    clock.commit()
    device.cpu += 40 * MS
    clock.flush()
    assert not len(StageReader(path).read())
    device.cpu += 20 * MS
    clock.flush()
    (record,) = StageReader(path).read()
    assert record["end"][Stage.SEND] - record["begin"][Stage.SEND] == pytest.approx(45 * MS, abs=10 * US)


def test_what_is_in_a_batch_and_its_drafts_are_counted(clock: EventClock, path: Path, device: Device) -> None:
    accepted = torch.tensor([3, 0, 0, 1], dtype=torch.int32)
    clock.begin(1)
    clock.call(4)
    clock.count(requests=4, tokens=14, prefill=1, asked=3, way=1)
    scheduled = np.array([3, 3, 0, 2])
    clock.drafts(scheduled, accepted)
    clock.commit()
    accepted.fill_(9)  # the next call's
    scheduled.fill(9)
    device.cpu += device.behind
    clock.flush()
    (record,) = StageReader(path).read()
    assert (record["call"], record["requests"], record["tokens"], record["prefill"]) == (4, 4, 14, 1)
    assert (record["asked"], record["way"]) == (3, 1)
    assert record["drafted"] == 8
    assert record["drafted_at"][:4].tolist() == [3, 3, 2, 0]
    assert record["accepted"][:4].tolist() == [2, 1, 1, 0]


def test_drafts_that_are_not_copied_yet_hold_the_record_back(clock: EventClock, path: Path, device: Device) -> None:
    clock.begin(1)
    clock.drafts([1], torch.ones(1))
    clock.commit()
    assert not len(StageReader(path).read())
    device.cpu += device.behind
    clock.flush()
    assert len(StageReader(path).read()) == 1


def test_a_call_that_is_not_committed_leaves_nothing(clock: EventClock, path: Path, device: Device) -> None:
    clock.begin(1)
    clock.start(Stage.RECV)
    clock.drafts([1], torch.ones(1))
    clock.count(requests=1, tokens=1, prefill=1)
    clock.begin(2)
    clock.commit()
    device.cpu += device.behind
    clock.flush()
    (record,) = StageReader(path).read()
    assert record["call"] == 2
    assert not record["begin"].any()
    assert not record["requests"]
    assert not record["drafted"]


def test_outside_of_a_call_nothing_is_recorded(clock: EventClock, path: Path, device: Device) -> None:
    made = device.made
    clock.start(Stage.RECV)
    clock.stop(Stage.RECV)
    clock.count(requests=1, tokens=1, prefill=1)
    clock.drafts([1], torch.ones(1))
    clock.call(3)
    clock.commit()
    clock.flush()
    assert device.made == made
    assert not len(StageReader(path).read())


def test_a_stage_without_an_end_has_a_start(clock: EventClock, path: Path, device: Device) -> None:
    clock.begin(1)
    clock.start(Stage.DRAFT)
    clock.commit()
    device.cpu += device.behind
    clock.flush()
    (record,) = StageReader(path).read()
    assert record["begin"][Stage.DRAFT] > OFFSET
    assert record["end"][Stage.DRAFT] == 0


def test_a_stage_that_begins_again_begins_then(clock: EventClock, path: Path, device: Device) -> None:
    clock.begin(1)
    clock.start(Stage.DRAFT)
    device.cpu += 30 * MS
    clock.start(Stage.DRAFT)
    clock.stop(Stage.DRAFT)
    clock.commit()
    device.cpu += device.behind
    clock.flush()
    (record,) = StageReader(path).read()
    assert record["end"][Stage.DRAFT] - record["begin"][Stage.DRAFT] < MS


def test_events_are_used_again(clock: EventClock, device: Device) -> None:
    made = device.made
    for call in range(100):
        step(clock, device, call)
    assert device.made - made <= 6, "those of the calls that the device is not past"


def test_the_first_anchor_is_the_surest_one(device: Device) -> None:
    delays = iter([90 * US, 80 * US, 5 * US, 70 * US, 60 * US])

    def event() -> Event:
        device.quick = next(delays)
        return device.event()

    assert first_anchor(event, "aside", device.now).width < 10 * US


def test_times_stay_right_although_clocks_drift(clock: EventClock, path: Path, device: Device) -> None:
    reader, seen, true = StageReader(path), [], []
    device.drift, first = 20e-6, clock.anchor
    for call in range(6000):  # a minute
        true.append(step(clock, device, call))
        seen += list(reader.read())
    errors = np.abs(np.array(forward(seen)) - true[: len(seen)])
    limit = WIDEST_NS / 2 + (RENEW_NS + 20 * MS) * device.drift
    assert errors.max() < limit
    assert errors.max() > 100 * US, "without drift this would show nothing"
    assert clock.anchor.latest - first.latest > 50_000 * MS


def test_one_anchor_for_ever_would_go_wrong(
    path: Path, device: Device, clock: EventClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above means something."""
    monkeypatch.setattr("worker.minedraft.event_clock.RENEW_NS", 10**15)
    device.drift = 20e-6
    true = [step(clock, device, call) for call in range(4000)]
    seen = forward(StageReader(path).read())
    assert abs(seen[-1][0] - true[len(seen) - 1][0]) > 700 * US


@pytest.mark.parametrize(("quick", "look"), [(3 * MS, US), (10, WIDEST_NS + US)])
def test_an_anchor_that_is_late_or_unsure_is_not_taken(
    clock: EventClock, path: Path, device: Device, quick: int, look: int
) -> None:
    """Of a device that another process uses, too, or where the CPU was held up."""
    first, fine = clock.anchor, (device.quick, device.look)
    device.cpu += RENEW_NS
    device.quick, device.look = quick, look
    for call in range(5):
        step(clock, device, call)
    assert clock.anchor is first
    assert len(StageReader(path).read()) == 4, "records go on all the same"
    device.quick, device.look = fine
    step(clock, device, 5)
    step(clock, device, 6)
    assert clock.anchor.earliest > first.latest + RENEW_NS


def test_an_anchor_says_how_sure_it_is(device: Device) -> None:
    event, later = device.event(), device.event()
    event.record("aside")
    later.record()
    device.cpu += device.behind
    anchor = Anchor(event, 1000, 1600)
    assert anchor.width == 600
    assert anchor.time_of(later) == pytest.approx(1300 + later.at - event.at, abs=1 * US)


def test_a_record_costs_next_to_nothing(path: Path, device: Device) -> None:
    clock, costs = made(path, device), []
    scheduled, accepted = np.full(256, 4), torch.arange(256, dtype=torch.int32) % 5
    for call in range(500):
        begin = time.perf_counter_ns()
        clock.begin(call)
        for stage in (Stage.RECV, Stage.PREPARE, Stage.FORWARD, Stage.SAMPLE, Stage.SEND):
            clock.start(stage)
            clock.stop(stage)
        clock.count(requests=256, tokens=1280, prefill=0)
        clock.drafts(scheduled, accepted)
        clock.commit()
        costs.append(time.perf_counter_ns() - begin)
        device.cpu += 10 * MS
    median_us = statistics.median(costs) / 1000
    print(f"a record of 256 requests costs {median_us:.1f} us beside what CUDA takes for its events")
    assert median_us < 200


def test_the_clock_fits_the_device(path: Path) -> None:
    assert isinstance(stage_clock(path, torch.device("cpu")), StageClock)


def test_a_clock_of_the_cpu_has_nothing_to_flush(path: Path) -> None:
    plain = StageClock(path)
    plain.begin(1)
    plain.took(Stage.FORWARD, 5, 9)
    plain.commit()
    plain.flush()
    (record,) = StageReader(path).read()
    assert (record["begin"][Stage.FORWARD], record["end"][Stage.FORWARD]) == (5, 9)


def test_a_pipeline_records_all_that_readers_look_at(tmp_path: Path, device: Device) -> None:
    paths = [tmp_path / "verifier.stages", tmp_path / "drafter.stages"]
    clocks = [made(path, device) for path in paths]
    down: deque[torch.Tensor] = deque()
    up: deque[torch.Tensor] = deque()
    wire = SimpleNamespace(
        send_sampled=down.append,
        recv_sampled=lambda rows: down.popleft(),
        send_drafts=up.append,
        recv_drafts=lambda rows: up.popleft(),
        expect_drafts=lambda rows: None,
        expect_sampled=lambda rows: None,
        wait_sent=lambda outstanding: None,
    )
    verifier, drafter = VerifierPipeline(wire, clocks[0], DRAFTS, 4), DrafterPipeline(wire, clocks[1], DRAFTS)
    table = torch.zeros((4, DRAFTS), dtype=torch.int64)
    slots = np.array([2, 0], np.int32)
    batch = SimpleNamespace(
        idx_mapping_np=slots, idx_mapping=torch.from_numpy(slots), num_draft_tokens_per_req=np.full(2, DRAFTS)
    )
    counts = torch.tensor([DRAFTS + 1, 1], dtype=torch.int32)
    for requests in (["a", "b"], ["c", "d"]):
        call = steps.step(dict.fromkeys(requests, DRAFTS))
        verifier.begin(call, {})
        verifier.get_prev_sampled_outputs(table)
        verifier.broadcast(torch.ones((2, DRAFTS + 1)), counts, DRAFTS + 1 - counts, batch)
        clocks[0].commit()
        drafter.begin(call, {})
        drafter.sampled(2, table.device)
        drafter.broadcast_drafts(table, batch)
        clocks[1].commit()
    verifier.begin(steps.step({}), {})  # an empty call, of which nothing is recorded
    verifier.get_prev_sampled_outputs(table)
    device.cpu += device.behind
    for clock in clocks:
        clock.flush()
    of_verifier, of_drafter = (StageReader(path).read() for path in paths)
    assert of_verifier["call"].tolist() == of_drafter["call"].tolist() == [1, 2]
    for records, stages in ((of_verifier, (Stage.RECV, Stage.SEND)), (of_drafter, (Stage.PREPARE, Stage.RECV))):
        assert (records["begin"][:, stages] > 0).all()
        assert (records["end"][:, stages] >= records["begin"][:, stages]).all()
        assert records["requests"].tolist() == [2, 2]
    assert (of_drafter["end"][:, Stage.SEND] >= of_drafter["end"][:, Stage.RECV]).all()
    assert of_verifier["accepted"][:, :DRAFTS].tolist() == [[1] * DRAFTS] * 2
