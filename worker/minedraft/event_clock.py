"""The stage clock of a rank that computes on a CUDA device: when the device did what, not when Python asked for it.

A stage's start and end are events on the stream that is current then. What they say is known once the device is past
them, so a call's record is published later, with a call that comes after it, or by `flush`: nothing waits.

Events only tell how long one was after another one. So there is an **anchor**, an event whose time of CLOCK_MONOTONIC
is known between two bounds: it cannot have been before the CPU asked for it, nor after the CPU saw that it had been.
The first one is taken once all that was asked of the device is done. Later ones are asked for on a stream of their own,
which is empty, so that they do not stand behind a forward pass. The CPU looks once, after it has published what was to
be published, and keeps an anchor that has been by then; one that has not is given up, and the next call tries again.

How wrong a time may be: half of the time between the bounds of its anchor, which is at most `WIDEST_NS`, and what the
clocks of device and CPU drift apart while that anchor is used, 10 s as a rule: 10 us a second where one of them is off
by 10 millionths. A new anchor is needed for another reason, too: `elapsed_time` is a float32 of ms, which tells 1 us
apart up to 10 s, but only 60 us after 1000 s. Within a call, times are as exact as events are.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from worker.minedraft.stages import Stage, StageClock

#: How long an anchor is used (ns).
RENEW_NS = 10_000_000_000
#: An anchor whose time is less certain than this is not taken in place of another one (ns).
WIDEST_NS = 200_000
#: The first anchor is the best one of so many; the device has nothing else to do then.
_TRIES = 5

_NS_PER_MS = 1_000_000


class TimingEvent(Protocol):
    """What is used of `torch.cuda.Event(enable_timing=True)`. One that is recorded again forgets what it was."""

    def record(self, stream: Any = None) -> None:
        """Mark this place in a stream; None: the current one."""
        ...

    def query(self) -> bool:
        """Whether the device is past it."""
        ...

    def synchronize(self) -> None:
        """Wait until it is."""
        ...

    def elapsed_time(self, end_event: Self) -> float:
        """How long after this one `end_event` was (ms); the device is past both."""
        ...


Now = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Anchor:
    """An event, and when it was.

    Attributes:
        event: the device is past it.
        earliest: when the CPU asked for it (ns of CLOCK_MONOTONIC).
        latest: when the CPU saw that the device is past it.
    """

    event: TimingEvent
    earliest: int
    latest: int

    @property
    def width(self) -> int:
        """How far apart the bounds are (ns); half of it is the most that times may be wrong by at first."""
        return self.latest - self.earliest

    def time_of(self, event: TimingEvent) -> int:
        """When an event was that was recorded after this one and that the device is past (ns of CLOCK_MONOTONIC)."""
        return (self.earliest + self.latest) // 2 + round(self.event.elapsed_time(event) * _NS_PER_MS)


def first_anchor(events: Callable[[], TimingEvent], stream: Any, now: Now) -> Anchor:
    """The surest anchor of a few, each waited for.

    Args:
        events: makes one.
        stream: an empty one.
        now: ns of CLOCK_MONOTONIC.
    """
    found = []
    for _ in range(_TRIES):
        event, asked = events(), now()
        event.record(stream)
        event.synchronize()
        found.append(Anchor(event, asked, now()))
    return min(found, key=lambda anchor: anchor.width)


@dataclass(slots=True)
class _Call:
    """What is known of a call whose record is not published."""

    number: int
    anchor: Anchor
    starts: dict[Stage, TimingEvent] = field(default_factory=dict)
    stops: dict[Stage, TimingEvent] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    drafts: tuple[NDArray[Any], Tensor, TimingEvent] | None = None

    def events(self) -> list[TimingEvent]:
        """All of its events."""
        copied = [] if self.drafts is None else [self.drafts[2]]
        return [*self.starts.values(), *self.stops.values(), *copied]


class EventClock:
    """As `StageClock`, for one thread, on a CUDA device: `start` and `stop` mark places in the current stream.

    Made while the device does nothing that anybody waits for: it waits for all that was asked of it.

    Args:
        path: the ring's file, as for `StageClock`.
        capacity: records that the ring holds.
        events: makes an event.
        anchors: a stream that nothing else uses; None: a new one.
        now: ns of CLOCK_MONOTONIC.

    Raises:
        OSError: the file cannot be made, or its room is not there.
    """

    def __init__(
        self,
        path: Path,
        capacity: int = 4096,
        *,
        events: Callable[[], TimingEvent] | None = None,
        anchors: Any = None,
        now: Now = time.monotonic_ns,
    ) -> None:
        self._ring = StageClock(path, capacity)
        if events is None:
            torch.cuda.synchronize()
            anchors = anchors or torch.cuda.Stream()
        self._make, self._stream, self._now = events or _cuda_event, anchors, now
        self._spare: list[TimingEvent] = []  # making an event takes longer than recording it, so they are used again
        self._anchor = first_anchor(self._make, anchors, now)
        self._open: _Call | None = None
        self._waiting: deque[_Call] = deque()

    @property
    def anchor(self) -> Anchor:
        """The one that the next call is told by."""
        return self._anchor

    def begin(self, call: int) -> None:
        """Open the record of a call, in place of one that was not committed."""
        if self._open is not None:
            self._spare += self._open.events()
        self._open = _Call(call, self._anchor)

    def call(self, call: int) -> None:
        """Say which call it is, where that was not known when the record was opened."""
        if self._open is not None:
            self._open.number = call

    def start(self, stage: Stage) -> None:
        """The stage begins when the current stream gets here. Outside of a call, as in an empty one: nothing."""
        if self._open is not None:
            self._mark(self._open.starts, stage)

    def stop(self, stage: Stage) -> None:
        """The stage ends when the current stream gets here."""
        if self._open is not None:
            self._mark(self._open.stops, stage)

    def count(self, *, requests: int, tokens: int, prefill: int, asked: int = 0, way: int = 0) -> None:
        """Say what is in the batch, as in `StageClock.count`."""
        if self._open is not None:
            counts = {"requests": requests, "tokens": tokens, "prefill": prefill, "asked": asked, "way": way}
            self._open.counts = counts

    def drafts(self, scheduled: ArrayLike, accepted: Tensor) -> None:
        """Count the drafts of the batch, once the device knows what was accepted.

        Args:
            scheduled: [requests] how many drafts of each were verified.
            accepted: [requests] how many of them, from the first on, were accepted; on the device.
        """
        if self._open is None:
            return
        if self._open.drafts is not None:
            self._spare.append(self._open.drafts[2])
        copy = accepted.to("cpu", non_blocking=True, copy=True)  # torch copies to pinned memory
        self._open.drafts = np.array(scheduled), copy, self._record()  # the runner may write its next ones there

    def commit(self) -> None:
        """The call's last event is recorded; publish the calls that the device is past."""
        call, self._open = self._open, None
        if call is None:
            return
        self._waiting.append(call)
        if self._now() - self._anchor.latest < RENEW_NS:
            self.flush()
        else:
            self._renew()

    def flush(self) -> None:
        """Publish, in order, the calls that the device is past; for whoever begins no call that would do it."""
        while self._waiting and all(event.query() for event in self._waiting[0].events()):
            self._publish(self._waiting.popleft())

    def _renew(self) -> None:
        """Try another anchor, in the time that publishing takes."""
        asked = self._now()
        event = self._record(self._stream)
        self.flush()
        if event.query() and (seen := self._now()) - asked <= WIDEST_NS:
            self._anchor = Anchor(event, asked, seen)  # for calls that begin from now on: their events come after it
        else:
            self._spare.append(event)

    def _publish(self, call: _Call) -> None:
        ring, time_of = self._ring, call.anchor.time_of
        ring.begin(call.number)
        for stage, start in call.starts.items():
            stop = call.stops.get(stage)
            ring.took(stage, time_of(start), 0 if stop is None else time_of(stop))
        if call.counts:
            ring.count(**call.counts)
        if call.drafts is not None:
            ring.drafts(call.drafts[0], call.drafts[1].numpy())
        ring.commit()
        self._spare += call.events()

    def _mark(self, events: dict[Stage, TimingEvent], stage: Stage) -> None:
        event = events.get(stage)
        if event is None:
            events[stage] = self._record()
        else:
            event.record()

    def _record(self, stream: Any = None) -> TimingEvent:
        event = self._spare.pop() if self._spare else self._make()
        event.record(stream)
        return event


#: What writes a rank's records.
Clock = StageClock | EventClock


def stage_clock(path: Path, device: torch.device) -> Clock:
    """The clock of a rank that computes on a device.

    Args:
        path: the ring's file.
        device: of the rank, the current one.
    """
    return EventClock(path) if device.type == "cuda" else StageClock(path)


def _cuda_event() -> TimingEvent:
    event: TimingEvent = torch.cuda.Event(enable_timing=True)
    return event
