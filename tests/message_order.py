"""Ranks with streams: what they do, written down while it is done, and every order in which it can happen.

What a rank does is in lines: its CPU's, and one for each of its streams. Lines run beside each other, the steps of one
after another. A step waits for the places of other lines that it needs, and a message for all who take part in it: a
send ends when it is received, a broadcast when all ranks are in it. That is what NCCL promises, and no more.

Nothing that a step does depends on the order, so the places in all lines are the whole state, as in `interleavings.py`.
"""

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.minedraft import nccl_link

#: A rank and what of it: "cpu" or a stream.
Line = tuple[int, str]
#: So many steps of a line.
Place = tuple[Line, int]
#: How far each line is.
State = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What a line does next.

    Attributes:
        what: its name.
        needs: the places that other lines must have reached.
        meets: what is the same for all steps that happen together; None: it happens alone.
    """

    what: str
    needs: tuple[Place, ...] = ()
    meets: Hashable = None


class Recording:
    """What all ranks do."""

    def __init__(self) -> None:
        self.lines: dict[Line, list[Step]] = {}
        self.parties: dict[Hashable, int] = {}
        """How many steps happen together."""

    def add(self, line: Line, what: str, *needs: Place | None, meets: Hashable = None, parties: int = 1) -> Place:
        """Another step of a line; where the line is after it."""
        if meets is not None:
            self.parties[meets] = parties
        steps = self.lines.setdefault(line, [])
        steps.append(Step(what, tuple(filter(None, needs)), meets))
        return line, len(steps)

    def place(self, line: Line) -> Place:
        """Where a line is."""
        return line, len(self.lines.setdefault(line, []))


class Stream:
    """As of CUDA: what it is given happens in order, at some time after it was given."""

    def __init__(self, recording: Recording, rank: int, name: str) -> None:
        self.line: Line = (rank, name)
        self._recording, self._cpu = recording, (rank, "cpu")
        self._after: list[Place] = []

    def wait_stream(self, other: "Stream") -> None:
        self._after.append(self._recording.place(other.line))

    def launch(self, what: str, *needs: Place | None, meets: Hashable = None, parties: int = 1) -> Place:
        """The CPU gives it something to do."""
        given = self._recording.add(self._cpu, f"launch {what}")
        needs, self._after = (given, *self._after, *needs), []
        return self._recording.add(self.line, what, *needs, meets=meets, parties=parties)


class Event:
    """A place of a stream."""

    def __init__(self, recording: Recording, rank: int, place: Place) -> None:
        self._recording, self._rank, self._place = recording, rank, place

    def synchronize(self) -> None:
        self._recording.add((self._rank, "cpu"), "wait", self._place)


class Streams(nccl_link.Streams):
    """The product's, of an imagined GPU.

    Args:
        recording: where what they are given is written down.
        rank: whose they are.
        beside: whether sends have a stream of their own, as they should.
    """

    def __init__(self, recording: Recording, rank: int, *, beside: bool = True) -> None:
        self.device = torch.device("cpu")
        self._recording, self._rank = recording, rank
        self._main = Stream(recording, rank, "main")
        self._side = Stream(recording, rank, "side") if beside else self._main

    def main(self) -> Stream:
        return self._main

    def keep(self, message: Tensor) -> None:
        """Memory is for ever."""

    def sent(self) -> Event:
        if self._side._after:  # nothing was given to it since it was told to wait
            self._side.launch("computed")
        return Event(self._recording, self._rank, self._recording.place(self._side.line))


class Wire:
    """A communicator of all ranks that are on it.

    Args:
        recording: where its operations are written down.
        name: its own.
        ranks: how many are on it.
    """

    def __init__(self, recording: Recording, name: str, ranks: int) -> None:
        self.recording, self.name, self.ranks = recording, name, ranks
        self.boxes: dict[Hashable, deque[Tensor]] = defaultdict(deque)
        """Messages by their kind and receiver."""


class Communicator:
    """A rank's, which does one thing after another, on whatever streams. Messages get across at once.

    Args:
        wire: what it is on.
        rank: its rank there.
    """

    def __init__(self, wire: Wire, rank: int) -> None:
        self.destroyed = 0
        self._wire, self._rank = wire, rank
        self._last: Place | None = None
        self._counts: dict[Hashable, int] = defaultdict(int)

    def send(self, tensor: Tensor, dst: int, stream: Stream) -> None:
        self._give(tensor, ("message", self._rank, dst), [dst], stream)

    def recv(self, tensor: Tensor, src: int, stream: Stream) -> None:
        self._take(tensor, ("message", src, self._rank), 2, stream)

    def broadcast(self, tensor: Tensor, src: int, stream: Stream) -> None:
        if self._rank == src:
            self._give(tensor, ("all", src), sorted({*range(self._wire.ranks)} - {src}), stream)
        else:
            self._take(tensor, ("all", src), self._wire.ranks, stream)

    def destroy(self) -> None:
        self.destroyed += 1

    def _give(self, tensor: Tensor, kind: Hashable, receivers: Sequence[int], stream: Stream) -> None:
        for rank in receivers:
            self._wire.boxes[kind, rank].append(tensor.clone())
        self._do("send", tensor, kind, len(receivers) + 1, stream)

    def _take(self, tensor: Tensor, kind: Hashable, parties: int, stream: Stream) -> None:
        box = self._wire.boxes[kind, self._rank]
        # Who receives too early, or another number of rows, gets nothing, and cannot go on, in any order.
        if box and box[0].shape == tensor.shape:
            tensor.copy_(box.popleft())
        self._do("receive", tensor, kind, parties, stream)

    def _do(self, verb: str, tensor: Tensor, kind: Hashable, parties: int, stream: Stream) -> None:
        self._counts[kind] += 1
        number = self._counts[kind]
        meets = self._wire.name, kind, number, tuple(tensor.shape)
        what = f"{verb} {self._wire.name} {number}"
        self._last = stream.launch(what, self._last, meets=meets, parties=parties)


class Part:
    """Two ranks of another communicator, as one of their own that it is not.

    Args:
        whole: the other communicator, of either rank.
        ranks: what the two are called there.
    """

    def __init__(self, whole: Communicator, ranks: tuple[int, int]) -> None:
        self._whole, self._ranks = whole, ranks

    def send(self, tensor: Tensor, dst: int, stream: Stream) -> None:
        self._whole.send(tensor, self._ranks[dst], stream)

    def recv(self, tensor: Tensor, src: int, stream: Stream) -> None:
        self._whole.recv(tensor, self._ranks[src], stream)


class Orders:
    """All orders in which what was written down can happen.

    Args:
        recording: of all ranks.
    """

    def __init__(self, recording: Recording) -> None:
        self._lines = list(recording.lines)
        self._steps = [recording.lines[line] for line in self._lines]
        index = {line: number for number, line in enumerate(self._lines)}
        self._needs = [
            [[(index[line], place) for line, place in step.needs] for step in steps] for steps in self._steps
        ]
        together: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
        for line, steps in enumerate(self._steps):
            for place, step in enumerate(steps):
                together[step.meets].append((line, place))
        #: Who goes on together with each step; nobody: the others never come.
        self._together = [
            [
                [(line, place)]
                if step.meets is None
                else (together[step.meets] if len(together[step.meets]) == recording.parties[step.meets] else [])
                for place, step in enumerate(steps)
            ]
            for line, steps in enumerate(self._steps)
        ]
        self.end: State = tuple(len(steps) for steps in self._steps)
        self.states = self._reached()

    def stuck(self) -> list[dict[Line, str]]:
        """The steps before which lines stand still for ever, in each state that cannot be left; the end is none."""
        return [self._next(state) for state in self.states if state != self.end and not [*self._following(state)]]

    def can_precede(self, first: tuple[int, str], second: tuple[int, str]) -> bool:
        """Whether there is an order in which one step, of a rank, is over before another one is."""
        (line, place), (other, later) = self._find(first), self._find(second)
        return any(state[line] > place and state[other] <= later for state in self.states)

    def _reached(self) -> set[State]:
        start = tuple(0 for _ in self._steps)
        seen, edge = {start}, [start]
        while edge:
            for after in self._following(edge.pop()):
                if after not in seen:
                    seen.add(after)
                    edge.append(after)
        return seen

    def _following(self, state: State) -> Iterator[State]:
        for line, place in enumerate(state):
            if place == self.end[line]:
                continue
            moving = self._together[line][place]
            # Of those who go on together the first one finds it out for all.
            if moving and moving[0][0] == line and all(self._ready(state, *step) for step in moving):
                after = list(state)
                for who, _ in moving:
                    after[who] += 1
                yield tuple(after)

    def _ready(self, state: State, line: int, place: int) -> bool:
        return state[line] == place and all(state[other] >= needed for other, needed in self._needs[line][place])

    def _next(self, state: State) -> dict[Line, str]:
        rest = zip(self._lines, self._steps, state, strict=True)
        return {line: steps[place].what for line, steps, place in rest if place < len(steps)}

    def _find(self, step: tuple[int, str]) -> tuple[int, int]:
        rank, what = step
        ((line, place),) = [
            (line, place)
            for line, steps in enumerate(self._steps)
            for place, found in enumerate(steps)
            if (self._lines[line][0], found.what) == (rank, what)
        ]
        return line, place
