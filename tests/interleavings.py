"""Every order in which ranks can run through fixed lists of operations: where they get stuck, and how much piles up.

The lists do not depend on the order in which they are run, so the ranks' places in them are the whole state: what is
under way from one rank to another follows from how many messages the one has sent and the other has received.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Issued:
    """Wait until the engine has made this call: when the lead has done another one, or at once (0)."""

    call: int
    after: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The call is over for the lead."""

    call: int


@dataclass(frozen=True, slots=True)
class Meet:
    """Wait for the other ranks that meet in this call, as in a forward pass that they share."""

    call: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send the message of a call to another rank."""

    call: int
    to: int


@dataclass(frozen=True, slots=True)
class Relay:
    """Hand the message of a call on to other ranks."""

    call: int
    to: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for the next message of a rank, and find that it is that of a call."""

    source: int
    call: int


Operation = Issued | Done | Meet | Send | Relay | Receive
#: How far each rank is.
State = tuple[int, ...]


class Transport(Enum):
    """What becomes of a message between send and receive."""

    BUFFERED = auto()
    """It waits for its receiver, and the sender goes on."""
    BROADCASTS = auto()
    """The same, but who relays waits for all receivers, which take it together."""
    ONE_COMMUNICATOR = auto()
    """The sender, too, waits until it is taken: both directions share one queue in program order."""


class Interleavings:
    """Runs through all of them.

    Args:
        programs: the operations of each rank. Rank 0 leads: its calls being done is what the engine waits for.
        transport: how messages travel.
        room: messages that may be under way from one rank to another before a send waits; None: any number.
    """

    def __init__(self, programs: Sequence[Sequence[Operation]], transport: Transport, room: int | None = None) -> None:
        self._programs = programs
        self._transport, self._room = transport, room
        ranks = range(len(programs))
        #: Messages from one rank to another, before each place of the sender's, and of the receiver's, program.
        between = [(source, to) for source in ranks for to in ranks if source != to]
        self._sent = {(source, to): _running(to in _receivers(op) for op in programs[source]) for source, to in between}
        self._taken = {
            (source, to): _running(isinstance(op, Receive) and op.source == source for op in programs[to])
            for source, to in between
        }
        self._used = [pair for pair, sent in self._sent.items() if sent[-1]]
        self._done = {op.call: place for place, op in enumerate(programs[0]) if isinstance(op, Done)}
        self.end: State = tuple(len(program) for program in programs)
        self.most_under_way = 0

    def stuck(self) -> list[State]:
        """The states that can be reached and not be left, the end apart; fills in `most_under_way`."""
        start = tuple(0 for _ in self._programs)
        seen, edge, found = {start}, [start], []
        while edge:
            state = edge.pop()
            following = list(self._following(state))
            if not following and state != self.end:
                found.append(state)
            for after in following:
                if after not in seen:
                    seen.add(after)
                    edge.append(after)
        self.most_under_way = max(self._under_way(state) for state in seen)
        return found

    def unread(self) -> int:
        """Messages that nobody has received in the end."""
        return self._under_way(self.end)

    def _following(self, state: State) -> Iterator[State]:
        for rank, program in enumerate(self._programs):
            if state[rank] < len(program):
                moving = self._moving(state, rank, program[state[rank]])
                if moving:
                    yield tuple(place + (who in moving) for who, place in enumerate(state))

    def _moving(self, state: State, rank: int, op: Operation) -> Sequence[int]:
        """The ranks that go on together when this one does its next operation; none: it cannot."""
        match op:
            case Issued(_, after):
                return (rank,) if not after or state[0] > self._done[after] else ()
            case Done():
                return (rank,)
            case Meet():
                return self._together(state, [who for who, program in enumerate(self._programs) if op in program], op)
            case Send() | Relay():
                to = _receivers(op)
                if not self._waits(op):
                    return (rank,) if self._has_room(state, rank, to) else ()
                return (rank, *to) if self._all_receive(state, to, rank) else ()
            case Receive(source):
                between = source, rank
                return (rank,) if self._sent[between][state[source]] > self._taken[between][state[rank]] else ()

    def _waits(self, op: Operation) -> bool:
        """Whether it ends when the message is taken; then sender and receivers go on together."""
        if isinstance(op, Relay):
            return self._transport is not Transport.BUFFERED
        return self._transport is Transport.ONE_COMMUNICATOR

    def _has_room(self, state: State, source: int, receivers: Sequence[int]) -> bool:
        return self._room is None or all(self._between(state, source, to) < self._room for to in receivers)

    def _all_receive(self, state: State, receivers: Sequence[int], source: int) -> bool:
        following = [self._next(state, who) for who in receivers]
        return all(isinstance(op, Receive) and op.source == source for op in following)

    def _together(self, state: State, ranks: Sequence[int], op: Operation) -> Sequence[int]:
        return ranks if all(self._next(state, who) == op for who in ranks) else ()

    def _next(self, state: State, rank: int) -> Operation | None:
        program = self._programs[rank]
        return program[state[rank]] if state[rank] < len(program) else None

    def _under_way(self, state: State) -> int:
        """The most messages from one rank to another that have not been received."""
        return max((self._between(state, source, to) for source, to in self._used), default=0)

    def _between(self, state: State, source: int, to: int) -> int:
        return self._sent[source, to][state[source]] - self._taken[source, to][state[to]]


def _receivers(op: Operation) -> Sequence[int]:
    match op:
        case Send(_, to):
            return (to,)
        case Relay(_, to):
            return to
    return ()


def _running(flags: Iterator[bool]) -> list[int]:
    """How many were true before each place, and in all."""
    counts = [0]
    for flag in flags:
        counts.append(counts[-1] + flag)
    return counts
