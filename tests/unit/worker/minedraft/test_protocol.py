"""The lanes' protocol: no order in which ranks can run stops them, no message is left, and drafts reach their requests.

What each rank does is written down while the real lanes run in lockstep, and `interleavings` tries every order of it.
"""

import itertools
import os
import random
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from queue import Queue

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interleavings import Done, Interleavings, Issued, Meet, Receive, Send, Transport
from lockstep import Filled, drafted, due, in_lockstep, sampled
from steps import DRAFTS, MemoryLink, Step, lives, step
from torch import Tensor

from worker.minedraft.lanes import DrafterLane, VerifierLane
from worker.minedraft.link import MAX_OUTSTANDING
from worker.minedraft.stages import StageClock

#: For each call, whether it has requests.
Pattern = Sequence[bool]

LONGEST = 8
DEADLINE_S = 60.0


def calls_of(pattern: Pattern) -> list[Step]:
    """Calls of two batches, some of them empty."""
    return [step({f"r{number % 2}": DRAFTS}) if full else step() for number, full in enumerate(pattern)]


def patterns() -> Iterator[Pattern]:
    """All sequences of full and empty calls. Shorter ones are not superfluous: an engine may stop anywhere."""
    for length in range(1, LONGEST + 1):
        yield from itertools.product([True, False], repeat=length)


@pytest.mark.parametrize("transport", [Transport.BUFFERED, Transport.SIDE_QUEUES, Transport.BROADCASTS])
@pytest.mark.parametrize("verifiers", [1, 2])
def test_no_order_stops_the_ranks_or_leaves_a_message_behind_an_empty_call(
    verifiers: int, transport: Transport
) -> None:
    most = 0
    for pattern in patterns():
        orders = Interleavings(in_lockstep(calls_of(pattern), verifiers).programs, transport)
        assert orders.stuck() == [], pattern
        assert (orders.unread() == 0) is (not pattern[-1]), pattern
        most = max(most, orders.most_under_way)
    assert most == 2 <= MAX_OUTSTANDING


@pytest.mark.parametrize("verifiers", [1, 2])
def test_one_communicator_for_both_directions_would_stop_them(verifiers: int) -> None:
    """The control: each side would wait for the other to take what it sends."""
    programs = in_lockstep(calls_of([True, True, True]), verifiers).programs
    (stuck,) = Interleavings(programs, Transport.ONE_COMMUNICATOR).stuck()
    assert programs[0][stuck[0]] == Send(2, (verifiers,))
    assert programs[-1][stuck[-1]] == Send(1, tuple(range(verifiers)))


def test_a_message_is_received_in_the_call_that_needs_it() -> None:
    for pattern in patterns():
        verifier = in_lockstep(calls_of(pattern), 1).programs[0]
        unread = deque(number for number, full in enumerate(pattern, 1) if full)
        for number, full in enumerate(pattern, 1):
            begin = verifier.index(Issued(number)) + 1
            end = verifier.index(Meet(number) if full else Done(number))
            newest = number - 2 if full else number - 1
            wanted = [unread.popleft() for _ in range(sum(call <= newest for call in unread))]
            assert verifier[begin:end] == [Receive(1, call) for call in wanted], (pattern, number)


@given(seed=st.integers(0, 2**32), length=st.integers(1, 60))
def test_each_placeholder_stands_for_the_draft_of_its_requests_last_call(seed: int, length: int) -> None:
    calls = list(lives(seed, length))
    run = in_lockstep(calls, 2)
    assert run.filled == [due(calls)] * 3
    assert run.known == [0] * 3


def in_threads(calls: Sequence[Step], verifiers: int, seed: int) -> list[Filled]:
    """Run the lanes, each rank in a thread of its own, as an engine drives them: two calls under way at most."""
    down: Queue[Tensor] = Queue()
    up = [Queue[Tensor]() for _ in range(verifiers)]
    issued = [Queue[Step]() for _ in range(verifiers + 1)]
    replies: Queue[int] = Queue()
    meet = threading.Barrier(verifiers, timeout=DEADLINE_S)

    def dawdle(chance: random.Random) -> None:
        for _ in range(chance.choice([0, 0, 1, 5])):
            os.sched_yield()

    def verify(rank: int) -> Filled:
        lane = VerifierLane(MemoryLink(down, up, rank, DEADLINE_S), StageClock(None), sends=rank == 0)
        chance, filled = random.Random(f"{seed} {rank}"), []
        for number in range(1, len(calls) + 1):
            call = issued[rank].get(timeout=DEADLINE_S)
            dawdle(chance)
            lane.begin(call)
            filled.append(call.scheduled_spec_decode_tokens)
            if call.num_scheduled_tokens:
                meet.wait()
                dawdle(chance)
                lane.sampled(call, sampled(number, call))
            if rank == 0:
                replies.put(number)
        return filled

    def draft() -> Filled:
        lane = DrafterLane(MemoryLink(down, up, None, DEADLINE_S), StageClock(None))
        chance, filled = random.Random(f"{seed} drafter"), []
        for number in range(1, len(calls) + 1):
            call = issued[-1].get(timeout=DEADLINE_S)
            lane.begin(call)
            filled.append(call.scheduled_spec_decode_tokens)
            if call.num_scheduled_tokens:
                dawdle(chance)
                assert lane.sampled(call).equal(sampled(number, call))
                dawdle(chance)
                lane.drafted(call, drafted(number, call))
        return filled

    with ThreadPoolExecutor(verifiers + 1) as threads:
        ranks = [threads.submit(verify, rank) for rank in range(verifiers)] + [threads.submit(draft)]
        for number, call in enumerate(calls, 1):
            if number > 2:
                assert replies.get(timeout=DEADLINE_S) == number - 2
            for inbox in issued:
                inbox.put(deepcopy(call))
        filled = [rank.result() for rank in ranks]
    assert all(wire.empty() for wire in (down, *up))
    return filled


@pytest.fixture
def _restless() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize("verifiers", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_ranks_that_race_fill_in_the_same_drafts(verifiers: int, seed: int) -> None:
    calls = list(lives(seed, 300))
    assert in_threads(calls, verifiers, seed) == [due(calls)] * (verifiers + 1)
