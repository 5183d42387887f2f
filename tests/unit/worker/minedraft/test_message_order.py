"""No order in which GPUs can run stops them: the real pipelines and NCCL ends on imagined streams."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from message_order import Communicator, Orders, Part, Place, Recording, Stream, Streams, Wire
from steps import DRAFTS, step

from worker.minedraft import lanes, packets
from worker.minedraft.nccl_link import NcclDrafter, NcclVerifier
from worker.minedraft.pipeline import DrafterPipeline, VerifierPipeline
from worker.minedraft.stages import StageClock

SLOTS = 4
NOBODY = 0


@dataclass(frozen=True)
class Call:
    """What the engine asks for.

    Attributes:
        rows: names of requests, a letter each.
        ended: names of those that end before it, or are aborted while a call of theirs is under way.
        asked: tokens to draft for each; 0: nothing is sent up.
    """

    rows: str
    ended: str = ""
    asked: int = DRAFTS


#: Two batches take turns, and the engine's last call is empty.
TURNS = [Call("a"), Call("b"), Call("a"), Call("b"), Call("a"), Call("", "ab")]
#: c is aborted while its call is under way, and d gets its slot; b ends; then a batch has nothing to do.
ABORT = [
    *[Call("ab"), Call("c"), Call("abd", "c"), Call("e"), Call("ad", "b")],
    *[Call("", "e"), Call("ad"), Call("", "ad")],
]
#: One batch is alone from the second call on, and then two again.
ALONE = [Call("a"), Call("a"), Call("ab"), Call("a"), Call("b"), Call("", "ab")]
#: In some calls nothing is drafted; in the last ones the drafter only keeps up.
PLAIN = [Call("a"), Call("b", asked=0), Call("a", asked=0), Call("b"), *[Call("ab", asked=0)] * 3, Call("", "ab")]
STORIES = {"turns": TURNS, "abort": ABORT, "alone": ALONE, "plain": PLAIN}


@dataclass
class Layout:
    """How messages travel; the product's, or what would be wrong with it.

    Attributes:
        verifiers: ranks of the target model.
        one_communicator: both directions have the same one.
        on_main: the ranks whose sends are on the main stream.
    """

    verifiers: int = 1
    one_communicator: bool = False
    on_main: Sequence[int] = ()


class Run:
    """All ranks, each call to its end before the next, and what they do written down."""

    def __init__(self, layout: Layout) -> None:
        verifiers, self.recording = layout.verifiers, Recording()
        up = Wire(self.recording, "up", verifiers + 1)
        down = Wire(self.recording, "down", 2)
        self.drafter = verifiers
        self.streams = [
            Streams(self.recording, rank, beside=rank not in layout.on_main) for rank in range(verifiers + 1)
        ]
        ups = [Communicator(up, rank) for rank in range(verifiers + 1)]
        first, last = Communicator(down, 0), Communicator(down, 1)
        if layout.one_communicator:
            first, last = (Part(whole, (0, verifiers)) for whole in (ups[0], ups[-1]))
        self.verifier_ends = [
            NcclVerifier(None if rank else first, ups[rank], verifiers, DRAFTS, self.streams[rank])
            for rank in range(verifiers)
        ]
        self.drafter_end = NcclDrafter(last, ups[-1], verifiers, DRAFTS, self.streams[-1])
        self.wires = [down, up]
        self.copies = Stream(self.recording, 0, "copy")
        self.results: list[Place] = []
        """Where the first verifier is when the engine has the result of each call."""

    def play(self, calls: Sequence[Call]) -> "Run":
        """Let the pipelines do it, as vLLM's V2 runner has them do it."""
        verifiers = [_Verifier(self, rank) for rank in range(self.drafter)]
        drafter = _Drafter(self)
        for number, (before, call) in enumerate(zip([Call(""), *calls], calls, strict=False), 1):
            after = [*self.results[-2:-1], *(self.results[-1:] if {*before.rows} & {*call.rows} else [])]
            for rank in range(self.drafter + 1):
                self.recording.add((rank, "cpu"), f"call {number}", *after)
            asked = step(dict.fromkeys(call.rows, DRAFTS), finished=" ".join(call.ended), asked=call.asked)
            for verifier in verifiers:
                verifier.execute(number, asked)
            drafter.execute(number, asked)
            if not call.rows:
                self.results.append(self.recording.place((0, "cpu")))
        return self

    def verify(self, rank: int, number: int) -> None:
        """A forward pass, which verifiers share, and sampling."""
        main = self.streams[rank].main()
        main.launch(f"verify {number}", meets=("verify", number), parties=self.drafter)

    def copy_result(self, number: int) -> None:
        """What was sampled goes to the engine (`AsyncOutput`, `v1/worker/gpu/async_utils.py`)."""
        self.copies.wait_stream(self.streams[0].main())
        self.results.append(self.copies.launch(f"result {number}"))

    def draft(self, number: int) -> None:
        """All passes of the draft model."""
        self.streams[self.drafter].main().launch(f"draft {number}")


class _Rank:
    """Requests have slots; the one that was freed last is taken first."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.slots: dict[str, int] = {}
        self.free = list(range(SLOTS))
        self.table = torch.full((SLOTS, DRAFTS), NOBODY, dtype=torch.int64)

    def take_in(self, asked: lanes.Step, freed: Callable[[int], None]) -> SimpleNamespace:
        """Requests end and join, in that order (`execute_model` in `v1/worker/gpu/model_runner.py`)."""
        for name in sorted(asked.finished_req_ids):
            self.free.append(self.slots.pop(name))
            freed(self.free[-1])
        for name in asked.num_scheduled_tokens:
            if name not in self.slots:
                self.slots[name] = self.free.pop()
                self.table[self.slots[name]] = NOBODY
        slots = np.array([self.slots[name] for name in asked.num_scheduled_tokens], np.int32)
        return SimpleNamespace(
            idx_mapping_np=slots,
            idx_mapping=torch.from_numpy(slots).long(),
            num_draft_tokens_per_req=np.full(len(slots), DRAFTS, np.int32),
        )


class _Verifier(_Rank):
    """Samples what says whose it is, and of which call."""

    def __init__(self, run: Run, rank: int) -> None:
        super().__init__(run)
        self._rank = rank
        self._pipeline = VerifierPipeline(run.verifier_ends[rank], StageClock(None), DRAFTS, SLOTS)
        self._due: dict[str, list[int]] = {}
        """The calls of each request whose drafts have not been verified."""

    def execute(self, number: int, asked: lanes.Step) -> None:
        self._pipeline.begin(asked, self.slots)
        self._pipeline.get_prev_sampled_outputs(self.table)
        batch = self.take_in(asked, self._pipeline.on_req_idx_freed)
        self._check_table(number, asked)
        if not asked.num_scheduled_tokens:
            return
        self.run.verify(self._rank, number)
        names = asked.num_scheduled_tokens
        ids = torch.tensor([[mark(name, number)] * (DRAFTS + 1) for name in names])
        counts = torch.full((len(names),), DRAFTS + 1), torch.zeros(len(names), dtype=torch.int32)
        self._pipeline.broadcast(ids, *counts, batch)
        if self._rank == 0:
            self.run.copy_result(number)

    def _check_table(self, number: int, asked: lanes.Step) -> None:
        """Whoever is verified has the drafts of its last call, and nobody has another one's."""
        self._due = {name: calls for name, calls in self._due.items() if name in self.slots}
        for name in asked.num_scheduled_tokens:
            expected = mark(name, self._due[name][-1]) if name in self._due else NOBODY
            assert self.table[self.slots[name]].tolist() == [expected] * DRAFTS, (number, name)
            if asked.num_spec_tokens_to_schedule:
                self._due.setdefault(name, []).append(number)
        for name, slot in self.slots.items():
            assert self.table[slot].tolist()[0] in (NOBODY, *(mark(name, call) for call in self._due.get(name, ()))), (
                number
            )


class _Drafter(_Rank):
    """Drafts what was sampled last."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._pipeline = DrafterPipeline(run.drafter_end, StageClock(None), DRAFTS)

    def execute(self, number: int, asked: lanes.Step) -> None:
        self._pipeline.begin(asked, self.slots)
        self._pipeline.get_prev_sampled_outputs(self.table)
        batch = self.take_in(asked, self._pipeline.on_req_idx_freed)
        names = asked.num_scheduled_tokens
        if not names:
            return
        ids, num_sampled, num_rejected = self._pipeline.sampled(len(names), torch.device("cpu"))
        assert ids.tolist() == [[mark(name, number)] * (DRAFTS + 1) for name in names]
        assert (num_sampled.tolist(), num_rejected.tolist()) == ([DRAFTS + 1] * len(names), [0] * len(names))
        self.run.draft(number)
        self.table[batch.idx_mapping] = ids[:, :DRAFTS]
        self._pipeline.broadcast_drafts(self.table, batch)


def mark(name: str, call: int) -> int:
    """A token that says whose it is."""
    return 100 * ord(name) + call


def orders(calls: Sequence[Call], layout: Layout | None = None) -> Orders:
    return Orders(Run(layout or Layout()).play(calls).recording)


def patterns(longest: int) -> Iterator[list[Call]]:
    """All sequences of calls with either request, both or none, and an empty call behind them."""
    for length in range(1, longest + 1):
        for rows in itertools.product(["", "a", "b", "ab"], repeat=length):
            if next((names for names in rows if names), "a") != "b":  # which one is called a does not matter
                yield [*map(Call, rows), Call("", "".join(sorted({*"".join(rows)})))]


@pytest.mark.parametrize("verifiers", [1, 2])
@pytest.mark.parametrize("story", STORIES)
def test_no_order_stops_the_ranks_or_leaves_a_message(story: str, verifiers: int) -> None:
    run = Run(Layout(verifiers)).play(STORIES[story])
    assert Orders(run.recording).stuck() == []
    assert not any(box for wire in run.wires for box in wire.boxes.values())


@pytest.mark.parametrize(("verifiers", "longest"), [(1, 4), (2, 3)])
def test_nor_does_any_order_of_any_short_sequence_of_calls(verifiers: int, longest: int) -> None:
    for calls in patterns(longest):
        assert orders(calls, Layout(verifiers)).stuck() == [], calls


def test_nor_where_some_of_them_ask_for_nothing() -> None:
    for calls in patterns(3):
        for asked in itertools.product([0, DRAFTS], repeat=len(calls)):
            some = [replace(call, asked=count) for call, count in zip(calls, asked, strict=True)]
            assert orders(some).stuck() == [], some


@pytest.mark.parametrize("verifiers", [1, 2])
def test_without_an_empty_call_in_the_end_the_last_drafts_are_left_and_nothing_else(verifiers: int) -> None:
    """So a sequence that leaves a message is found."""
    (stuck,) = orders(TURNS[:-1], Layout(verifiers)).stuck()
    assert stuck == {(verifiers, "side"): "send up 4"}


@pytest.mark.parametrize("verifiers", [1, 2])
def test_one_communicator_for_both_directions_stops_them(verifiers: int) -> None:
    """Verifier 0 sends the second packet, the drafter the first drafts, and each waits for the other to receive."""
    stuck = orders(TURNS, Layout(verifiers, one_communicator=True)).stuck()
    assert len(stuck) == 1
    assert stuck[0][0, "side"] == "send up 2"
    assert stuck[0][verifiers, "side"] == "send up 1"


@pytest.mark.parametrize("verifiers", [1, 2])
def test_sends_on_the_main_streams_of_both_sides_stop_them(verifiers: int) -> None:
    (stuck,) = orders(TURNS, Layout(verifiers, on_main=(0, verifiers))).stuck()
    assert (stuck[0, "main"], stuck[verifiers, "main"]) == ("send down 2", "send up 1")


@pytest.mark.parametrize("verifiers", [1, 2])
def test_a_verifiers_result_does_not_wait_for_the_drafter(verifiers: int) -> None:
    """With its sends on the main stream it would, behind a packet that a drafter that still drafts does not take."""
    result, drafted = (0, "result 2"), (verifiers, "draft 1")
    assert orders(TURNS, Layout(verifiers)).can_precede(result, drafted)
    wrong = orders(TURNS, Layout(verifiers, on_main=(0,)))
    assert wrong.stuck() == []
    assert not wrong.can_precede(result, drafted)


@pytest.mark.parametrize("verifiers", [1, 2])
def test_the_next_drafting_does_not_wait_for_a_verifier_to_take_the_last_drafts(verifiers: int) -> None:
    """With its sends on the main stream it would."""
    drafted, received = (verifiers, "draft 2"), (0, "receive up 1")
    assert orders(TURNS, Layout(verifiers)).can_precede(drafted, received)
    wrong = orders(TURNS, Layout(verifiers, on_main=(verifiers,)))
    assert wrong.stuck() == []
    assert not wrong.can_precede(drafted, received)


@pytest.mark.parametrize("first", ["send", "receive"])
def test_a_receive_before_the_send_that_leads_to_it_stops_them(first: str) -> None:
    run = Run(Layout())
    (verifier,) = run.verifier_ends

    def send() -> None:
        verifier.send_sampled(torch.zeros((1, DRAFTS + 3)))

    def receive() -> None:
        verifier.recv_drafts(1)

    for turn in (send, receive) if first == "send" else (receive, send):
        turn()
    run.drafter_end.recv_sampled(1)
    run.draft(1)
    run.drafter_end.send_drafts(torch.zeros((1, DRAFTS)))
    stuck = Orders(run.recording).stuck()
    if first == "send":
        assert stuck == []
    else:
        assert stuck == [
            {
                (0, "main"): "receive up 1",
                (0, "side"): "send down 1",
                (1, "main"): "receive down 1",
                (1, "side"): "send up 1",
            }
        ]


def test_batches_are_verified_and_drafted_at_the_same_time() -> None:
    """Each call of a kind can be over before the other one: nothing puts them in order, and both CPUs run ahead."""
    product = orders(TURNS)
    for verified, drafted in itertools.pairwise(range(5, 0, -1)):
        verify, draft = (0, f"verify {verified}"), (1, f"draft {drafted}")
        assert product.can_precede(verify, draft)
        assert product.can_precede(draft, verify)
    assert product.can_precede((0, "launch verify 2"), (0, "verify 1"))
    assert product.can_precede((1, "launch draft 2"), (1, "draft 1"))


@pytest.mark.parametrize("verifiers", [1, 2])
def test_nothing_is_sent_before_it_is_computed_or_used_before_it_is_received(verifiers: int) -> None:
    product = orders(TURNS, Layout(verifiers))
    for number in range(1, 6):
        chain = [(0, f"verify {number}"), (0, f"send down {number}"), (verifiers, f"draft {number}")]
        chain.append((verifiers, f"send up {number}"))
        if number < 4:
            chain += [(rank, f"verify {number + 2}") for rank in range(verifiers)][-1:]
        for earlier, later in itertools.pairwise(chain):
            assert product.can_precede(earlier, later)
            assert not product.can_precede(later, earlier)


@pytest.mark.parametrize("story", STORIES)
def test_no_buffer_of_the_drafter_is_written_while_it_is_read(story: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM has two sets of them; the third call takes those of the first, which must have been drafted for."""

    def races() -> list[int]:
        drafted = [number for number, call in enumerate(STORIES[story], 1) if call.rows]
        found = orders(STORIES[story])
        numbered = enumerate(zip(drafted, drafted[2:], strict=False), 3)
        return [
            last
            for place, (last, _) in numbered
            if found.can_precede((1, f"launch receive down {place}"), (1, f"draft {last}"))
        ]

    assert races() == []
    monkeypatch.setattr(DrafterPipeline, "AHEAD", 5)
    assert races() != [], "so one would be found"


def test_a_row_that_comes_too_late_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets.Slots, "kept", lambda _, slots, __: np.arange(len(slots)))
    with pytest.raises(AssertionError, match="4"):
        Run(Layout()).play(ABORT)
