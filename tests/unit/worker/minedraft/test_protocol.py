"""The lanes' protocol: no order in which ranks can run stops them, no message is left, and drafts reach their requests.

What each rank does is written down while the real lanes run in lockstep, and `interleavings` tries every order of it.
"""

import itertools
import os
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from itertools import pairwise
from queue import Queue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interleavings import Done, Interleavings, Issued, Meet, Receive, Relay, Send, Transport
from lockstep import Fate, Filled, drafted, due, due_proposals, in_lockstep, sampled
from steps import DRAFTS, MemoryLink, MemoryRelay, Step, drawn, lives, proposals_of, step

from worker.minedraft.lanes import DrafterLane, VerifierLane
from worker.minedraft.link import MAX_OUTSTANDING, LinkError
from worker.minedraft.relay import FirstVerifier, OtherVerifier
from worker.minedraft.stages import StageClock

#: For each call, the names of its requests: one that is in two calls in a row waits for the first to end.
Pattern = Sequence[str]

LONGEST = 5
DEADLINE_S = 60.0


def calls_of(
    pattern: Pattern, *, proposing: bool = False, asking: Iterable[int] = itertools.repeat(DRAFTS)
) -> list[Step]:
    """Calls; where there are proposals each has two messages up, where none is asked to be drafted none."""
    if proposing:
        pattern = [names.replace("r0", "r2").replace("r1", "r5") for names in pattern]
    return [
        step(dict.fromkeys(names.split(), DRAFTS), asked=asked) for names, asked in zip(pattern, asking, strict=False)
    ]


def patterns(longest: int = LONGEST) -> Iterator[Pattern]:
    """All sequences of calls with either request, both or none: two batches that take turns, or one alone.

    Shorter ones are not superfluous: an engine may stop anywhere.
    """
    for length in range(1, longest + 1):
        for pattern in itertools.product(["", "r0", "r1", "r0 r1"], repeat=length):
            if next((names for names in pattern if names), "r0") != "r1":  # which one is called r0 does not matter
                yield pattern


@pytest.mark.parametrize("proposing", [False, True])
@pytest.mark.parametrize(
    ("verifiers", "transport"), [(1, Transport.BUFFERED), (2, Transport.BUFFERED), (2, Transport.BROADCASTS)]
)
def test_no_order_stops_the_ranks_or_leaves_a_message_behind_an_empty_call(
    verifiers: int, transport: Transport, proposing: bool
) -> None:
    most = 0
    for pattern in patterns(LONGEST - proposing):  # with twice the messages
        orders = Interleavings(in_lockstep(calls_of(pattern, proposing=proposing), verifiers).programs, transport)
        assert orders.stuck() == [], pattern
        assert (orders.unread() == 0) is (not pattern[-1]), pattern
        most = max(most, orders.most_under_way)
    assert most == (4 if proposing else 2) <= MAX_OUTSTANDING


@pytest.mark.parametrize("proposing", [False, True])
def test_no_order_stops_ranks_of_which_the_drafter_is_sometimes_asked_for_nothing(proposing: bool) -> None:
    """Then it may fall behind until sends wait for it, here when the messages of two calls are under way."""
    room = 2 * (1 + proposing)
    most = 0
    for pattern in patterns(4):
        if pattern[-1]:
            continue  # somebody waits for a call that takes the messages
        for asking in itertools.product([0, DRAFTS], repeat=len(pattern)):
            calls = calls_of(pattern, proposing=proposing, asking=asking)
            orders = Interleavings(in_lockstep(calls, 1).programs, Transport.BUFFERED, room)
            assert orders.stuck() == [], (pattern, asking)
            most = max(most, orders.most_under_way)
    assert most == room


def test_a_drafter_that_is_asked_for_nothing_may_fall_behind() -> None:
    calls = calls_of(["r0"] * 6, asking=[0] * 6)
    orders = Interleavings(in_lockstep(calls, 1).programs, Transport.BUFFERED)
    assert orders.stuck() == []
    assert orders.most_under_way == 6


@pytest.mark.parametrize("verifiers", [1, 2])
def test_one_communicator_for_both_directions_would_stop_them(verifiers: int) -> None:
    """The control: each side would wait for the other to take what it sends."""
    programs = in_lockstep(calls_of(["r0", "r1", "r0"]), verifiers).programs
    (stuck,) = Interleavings(programs, Transport.ONE_COMMUNICATOR).stuck()
    assert programs[0][stuck[0]] == Send(2, verifiers)
    assert programs[-1][stuck[-1]] == Send(1, 0)


def test_a_message_is_received_in_the_call_that_needs_it_and_handed_on_at_once() -> None:
    for pattern in patterns():
        run = in_lockstep(calls_of(pattern), 2)
        numbers = numbers_of(pattern)
        unread = deque(call for call, names in enumerate(pattern, 1) if names)
        for call, names in enumerate(pattern, 1):
            newest = numbers[call] - (2 if names else 1)
            wanted = [unread.popleft() for _ in range(sum(numbers[sent] <= newest for sent in unread))]
            parts = []
            for program in run.programs[:2]:
                begin = next(place for place, op in enumerate(program) if isinstance(op, Issued) and op.call == call)
                rest = program[begin + 1 :]
                parts.append(list(itertools.takewhile(lambda op: not isinstance(op, Meet | Done | Issued), rest)))
            first, other = parts
            # A relayed message is numbered by the call that it is handed on in.
            assert first == [op for sent in wanted for op in (Receive(2, sent), Relay(call, (1,)))], (pattern, call)
            assert other == [Receive(0, call)] * len(wanted), (pattern, call)


def numbers_of(pattern: Pattern) -> list[int]:
    """The numbers of calls, from 1 on: even distances within a batch, though one alone has no calls between its own."""
    numbers = [0, 1]
    for before, names in pairwise(pattern):
        numbers.append(numbers[-1] + (2 if {*before.split()} & {*names.split()} else 1))
    return numbers


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 60))
def test_each_placeholder_stands_for_the_draft_of_its_requests_last_call(seed: int, length: int) -> None:
    calls = list(lives(seed, length))
    run = in_lockstep(calls, 2)
    assert run.filled == [due(calls)] * 3
    assert run.proposed == [due_proposals(calls)] * 2
    assert run.known == [0] * 3
    assert run.losses == 0


def check_losses(calls: Sequence[Step], verifiers: int, fates: Sequence[Fate], joins: Sequence[int]) -> None:
    """Whatever becomes of the drafters, all verifiers fill in alike, and use what they have got."""
    run = in_lockstep(calls, verifiers, fates, joins)
    expected = due(calls, run.received, joins)
    assert run.filled[:-1] == [expected] * verifiers
    assert run.filled[-1] == [expected[call - 1] for call in run.drafter_calls], "a drafter knows what is verified"
    proposals = due_proposals(calls, joins)
    assert all(proposed == run.proposed[0] for proposed in run.proposed)
    assert all(some.items() <= most.items() for some, most in zip(run.proposed[0], proposals, strict=True))
    assert run.losses or run.proposed[0] == proposals
    assert run.known[:-1] == [0] * verifiers
    received = iter(run.received)
    for drafter, sent in enumerate(run.sent):
        end = joins[drafter] if drafter < len(joins) else len(calls) + 1
        got = [call for call in run.received if call in sent]
        assert got == sent[: len(got)] == list(itertools.islice(received, len(got)))
        # What is under way when its sender is found to be gone, or when another one joins, is not waited for.
        missing = len(sent) - len(got)
        fate = fates[drafter]
        assert missing <= (2 if fate.noticed or end <= len(calls) else 0)
    assert run.losses <= len(fates)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    length=st.integers(1, 40),
    verifiers=st.integers(1, 3),
    fates=st.lists(st.builds(Fate, st.integers(0, 60), st.booleans()), min_size=1, max_size=3),
    data=st.data(),
)
def test_whenever_drafters_die_and_others_join_all_verifiers_fill_in_alike(
    seed: int, length: int, verifiers: int, fates: list[Fate], data: st.DataObject
) -> None:
    count = min(len(fates) - 1, length)
    joins = sorted(data.draw(st.lists(st.integers(1, length), min_size=count, max_size=count, unique=True)))
    calls = list(lives(seed, length, joins=joins))
    check_losses(calls, verifiers, fates[: count + 1], joins)


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("verifiers", [1, 3])
def test_a_drafter_may_die_at_every_point(verifiers: int, noticed: bool) -> None:
    calls = list(lives(7, 25))
    operations = sum(
        (3 + bool(drawn(call)) if call.num_spec_tokens_to_schedule else 2)
        for call in calls
        if call.num_scheduled_tokens
    )
    for lived in range(operations + 1):
        check_losses(calls, verifiers, [Fate(lived, noticed)], [])
    lost = [in_lockstep(calls, verifiers, [Fate(lived, noticed)]).losses for lived in (0, operations // 2, operations)]
    assert lost == [1, 1, 0]


def in_threads(calls: Sequence[Step], verifiers: int, seed: int, lived: int | None = None) -> list[Filled]:
    """Run the lanes, each rank in a thread of its own, as an engine drives them: two calls under way at most.

    Args:
        calls: numbered from 1.
        verifiers: how many.
        seed: of how long each waits.
        lived: the calls after which the drafter dies; None: it lives.

    Returns:
        What each has filled in, the drafter last.
    """
    link, relay = MemoryLink(DEADLINE_S), MemoryRelay(verifiers - 1, DEADLINE_S)
    issued = [Queue[Step]() for _ in range(verifiers + 1)]
    replies: Queue[int] = Queue()
    meet = threading.Barrier(verifiers, timeout=DEADLINE_S)
    losses: list[LinkError] = []

    def verify(rank: int) -> Filled:
        end = OtherVerifier(relay.of(rank)) if rank else FirstVerifier(link, relay, DRAFTS, losses.append)
        lane = VerifierLane(end, StageClock(None), sends=rank == 0, vocabulary=1)
        dawdle, filled = dawdling(f"{seed} {rank}"), []
        for number in range(1, len(calls) + 1):
            call = issued[rank].get(timeout=DEADLINE_S)
            dawdle()
            lane.begin(call)
            filled.append(call.scheduled_spec_decode_tokens)
            if call.num_scheduled_tokens:
                meet.wait()
                dawdle()
                lane.sampled(call, sampled(number, call), drawn(call))
            if rank == 0:
                replies.put(number)
        return filled

    def draft() -> Filled:
        lane = DrafterLane(link, StageClock(None))
        dawdle, filled = dawdling(f"{seed} drafter"), []
        for number in range(1, (len(calls) if lived is None else lived) + 1):
            call = issued[-1].get(timeout=DEADLINE_S)
            lane.begin(call)
            filled.append(call.scheduled_spec_decode_tokens)
            if call.num_scheduled_tokens:
                dawdle()
                assert lane.sampled(call).equal(sampled(number, call))
                dawdle()
                if call.num_spec_tokens_to_schedule:
                    proposed = proposals_of(number, drawn(call)) if drawn(call) else None
                    lane.drafted(call, drafted(number, call), proposed)
        if lived is not None:
            link.die()
        return filled

    with ThreadPoolExecutor(verifiers + 1) as threads:
        ranks = [threads.submit(verify, rank) for rank in range(verifiers)] + [threads.submit(draft)]
        ended = 0
        for number, (before, call) in enumerate(pairwise([step(), *calls]), 1):
            alone = before.num_scheduled_tokens.keys() & call.scheduled_spec_decode_tokens.keys()
            while ended < number - (1 if alone else 2):
                ended = replies.get(timeout=DEADLINE_S)
            for inbox in issued:
                inbox.put(deepcopy(call))
        filled = [rank.result() for rank in ranks]
    assert len(losses) == (lived is not None)
    assert all(inbox.empty() for inbox in relay.inboxes)
    assert lived is not None or (link.down.empty() and link.up.empty())
    return filled


def dawdling(seed: str) -> Callable[[], None]:
    chance = random.Random(seed)

    def dawdle() -> None:
        for _ in range(chance.choice([0, 0, 1, 5])):
            os.sched_yield()

    return dawdle


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


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize("verifiers", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_ranks_that_race_use_all_that_a_drafter_sent_before_it_died(verifiers: int, seed: int) -> None:
    calls, lived = list(lives(seed, 150)), 70
    expected = due(calls, range(1, lived + 1))
    assert in_threads(calls, verifiers, seed, lived) == [expected] * verifiers + [expected[:lived]]
