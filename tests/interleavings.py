"""Every order in which ranks can run through fixed lists of operations: where they get stuck, and how much piles up.

The lists do not depend on the order in which they are run, so the ranks' places in them are the whole state: what is
under way from one rank to another follows from how many messages the one has sent and the other has received.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Issued:
    """Wait until the engine has made this call: the first two at once, others when the lead has done call - 2."""

    call: int


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
    """Send the message of a call, always to the same ranks."""

    call: int
    to: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for the next message, and find that it is that of a call."""

    source: int
    call: int


Operation = Issued | Done | Meet | Send | Receive
#: How far each rank is.
State = tuple[int, ...]


class Transport(Enum):
    """What becomes of a message between send and receive."""

    BUFFERED = auto()
    """It waits for its receiver, and the sender goes on."""
    SIDE_QUEUES = auto()
    """It waits in the sender's side queue until the message before it has been taken; the sender goes on."""
    BROADCASTS = auto()
    """The same, and all receivers take it together."""
    ONE_COMMUNICATOR = auto()
    """The sender waits until it is taken: both directions share one queue in program order."""


class Interleavings:
    """Runs through all of them.

    Args:
        programs: the operations of each rank. Rank 0 leads: its calls being done is what the engine waits for.
        transport: how messages travel.
    """

    def __init__(self, programs: Sequence[Sequence[Operation]], transport: Transport) -> None:
        self._programs = programs
        self._transport = transport
        self._receivers = [next((op.to for op in program if isinstance(op, Send)), ()) for program in programs]
        self._sent = [_running(isinstance(op, Send) for op in program) for program in programs]
        self._taken = [
            [_running(isinstance(op, Receive) and op.source == source for op in program) for program in programs]
            for source in range(len(programs))
        ]
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
            case Issued(call):
                return (rank,) if call <= 2 or state[0] > self._done[call - 2] else ()
            case Done():
                return (rank,)
            case Meet():
                return self._together(state, [who for who, program in enumerate(self._programs) if op in program], op)
            case Send(_, to):
                if self._transport is not Transport.ONE_COMMUNICATOR:
                    return (rank,)
                return (rank, *to) if self._all_receive(state, to, rank) else ()
            case Receive(source):
                return self._receiving(state, rank, source)

    def _receiving(self, state: State, rank: int, source: int) -> Sequence[int]:
        taken, receivers = self._taken[source], self._receivers[source]
        number = taken[rank][state[rank]]
        if self._transport is Transport.ONE_COMMUNICATOR or self._sent[source][state[source]] <= number:
            return ()
        if self._transport is Transport.BROADCASTS:
            return receivers if self._all_receive(state, receivers, source) else ()
        if self._transport is Transport.SIDE_QUEUES:
            # One message to several receivers is one entry for each of them, in order of their ranks.
            ahead = (taken[who][state[who]] >= number + (who < rank) for who in receivers if who != rank)
            return (rank,) if all(ahead) else ()
        return (rank,)

    def _all_receive(self, state: State, receivers: Sequence[int], source: int) -> bool:
        following = [self._next(state, who) for who in receivers]
        return all(isinstance(op, Receive) and op.source == source for op in following)

    def _together(self, state: State, ranks: Sequence[int], op: Operation) -> Sequence[int]:
        return ranks if all(self._next(state, who) == op for who in ranks) else ()

    def _next(self, state: State, rank: int) -> Operation | None:
        program = self._programs[rank]
        return program[state[rank]] if state[rank] < len(program) else None

    def _under_way(self, state: State) -> int:
        """The most messages of one sender that some receiver has not received."""
        return max(
            (
                self._sent[source][state[source]] - self._taken[source][to][state[to]]
                for source, receivers in enumerate(self._receivers)
                for to in receivers
            ),
            default=0,
        )


def _running(flags: Iterator[bool]) -> list[int]:
    """How many were true before each place, and in all."""
    counts = [0]
    for flag in flags:
        counts.append(counts[-1] + flag)
    return counts
