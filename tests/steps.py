"""Calls as the two-batch scheduler makes them, without a scheduler, and a link without a wire."""

import queue
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from worker.minedraft import lanes
from worker.minedraft.link import LinkError
from worker.strategies.seam import Way

DRAFTS = 3


@dataclass
class Step:
    """What a lane reads of vLLM's `SchedulerOutput`."""

    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)
    finished_req_ids: set[str] = field(default_factory=set)
    num_spec_tokens_to_schedule: int = DRAFTS
    has_structured_output_requests: bool = False
    way: Way = Way.TWO

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())

    @total_num_scheduled_tokens.setter
    def total_num_scheduled_tokens(self, tokens: int) -> None:
        assert tokens == self.total_num_scheduled_tokens


def step(
    drafted: dict[str, int] | None = None,
    *,
    reading: dict[str, int] | None = None,
    finished: str = "",
    asked: int = DRAFTS,
    grammar: bool = False,
) -> Step:
    """One call.

    Args:
        drafted: how many placeholders each decoding request has.
        reading: how many tokens of its prompt each other request reads.
        finished: names of requests that have ended, with spaces between.
        asked: tokens to draft for each request.
        grammar: whether one of them has a grammar.
    """
    drafted, reading = drafted or {}, reading or {}
    return Step(
        {**{name: 1 + drafts for name, drafts in drafted.items()}, **reading},
        {name: [-1] * drafts for name, drafts in drafted.items() if drafts},
        set(finished.split()),
        asked,
        grammar,
    )


@dataclass
class _Life:
    """A request of the imagined engine: the calls in which it still reads its prompt, and when it may run again."""

    reads: int
    structured: bool
    due: int = 0
    last: int = 0
    anew: bool = False
    """It must be read from its first token on, for there is a drafter that does not know it."""


def lives(seed: int, calls: int, *, joins: Collection[int] = ()) -> Iterator[Step]:
    """What an engine may ask for, at random; in the end all requests have ended, and the last call is empty.

    Requests join, read prompts in consecutive calls, decode in every second one or wait one more, are preempted and
    resume, end, are aborted while a call is under way, and come back under the same name. vLLM writes placeholders
    for requests that join or resume with one token to read, too. Now and then all requests are one batch for a while:
    then they decode in every call, without empty ones between, or prompts alone are read on meanwhile. In some calls
    nothing is drafted, and in some a request has a grammar.

    Args:
        seed: of the random choices.
        calls: how many before the last.
        joins: calls before which another drafter joins: what runs is read again.
    """
    engine = _Engine(random.Random(seed))
    for call in range(1, calls + 1):
        if call in joins:
            engine.read_all_anew()
        yield engine.schedule(call)
    yield Step(finished_req_ids={*engine.running, *engine.preempted})


class _Engine:
    """The requests of `lives`."""

    def __init__(self, chance: random.Random) -> None:
        self.running: dict[str, _Life] = {}
        self.preempted: dict[str, _Life] = {}
        self._chance = chance
        self._together = False
        self._waits = 2  # calls from one of a row to the next

    def read_all_anew(self) -> None:
        """Preempt what runs. Nothing is under way."""
        for life in (*self.running.values(), *self.preempted.values()):
            life.anew = True
        self.preempted |= self.running
        self.running.clear()

    def schedule(self, call: int) -> Step:
        """The next call."""
        made, chance = Step(), self._chance
        made.num_spec_tokens_to_schedule = chance.choice([DRAFTS, DRAFTS, DRAFTS, 1, 0])
        made.has_structured_output_requests = chance.random() < 0.1
        if chance.random() < 0.15:
            self._together = not self._together
        # In one batch the result of the call before is in, or else prompts alone are read on.
        reads = any(life.reads for life in self.running.values())
        reading_on = self._together and reads and chance.random() < 0.3
        self._waits = 1 if self._together and not reading_on else 2
        self._end_some(made, call)
        for name in [name for name in self.running if not reading_on and chance.random() < 0.05]:
            self.preempted[name] = self.running.pop(name)
        for name, life in self.running.items():
            held = not life.reads and not self._together and chance.random() < 0.1
            if life.due <= call - self._waits and not held and not (reading_on and not life.reads):
                self._put(made, name, life, call, 0 if life.structured else chance.choice([DRAFTS, DRAFTS, 1]))
        if not reading_on:
            self._resume_some(made, call)
            self._add_some(made, call)
        return made

    def _end_some(self, made: Step, call: int) -> None:
        for pool in (self.running, self.preempted):
            for name, life in list(pool.items()):
                if self._chance.random() < (0.1 if life.last <= call - self._waits else 0.03):
                    made.finished_req_ids.add(name)
                    del pool[name]

    def _resume_some(self, made: Step, call: int) -> None:
        for name, life in list(self.preempted.items()):
            if (life.anew or life.last <= call - 2) and self._chance.random() < 0.5:
                life.reads = self._chance.randrange(1, 3) if life.anew else self._chance.randrange(3)
                life.anew = False
                self.running[name] = self.preempted.pop(name)
                self._put(made, name, life, call, DRAFTS)

    def _add_some(self, made: Step, call: int) -> None:
        for name in (f"r{number}" for number in range(8)):
            if name not in self.running and name not in self.preempted and self._chance.random() < 0.1:
                life = self.running[name] = _Life(self._chance.randrange(4), self._chance.random() < 0.2)
                self._put(made, name, life, call, DRAFTS)

    def _put(self, made: Step, name: str, life: _Life, call: int, placeholders: int) -> None:
        reads = life.reads > 0
        if reads:
            made.num_scheduled_tokens[name] = self._chance.choice([16, 16, 1])  # 1: what was left of a prompt
            life.reads -= 1
        else:
            made.num_scheduled_tokens[name] = 1 + placeholders
            if placeholders:
                made.scheduled_spec_decode_tokens[name] = [-1] * placeholders
        life.last = call
        life.due = call - 1 if life.reads else call  # a prompt is read on while its last part is under way


def draft_ids(call: int, request: str) -> list[int]:
    """What the drafter drafts in a call, each time something else, and never 0."""
    return [1 + call * 10_000 + int(request[1:]) * 10 + position for position in range(DRAFTS)]


def admitted(call: int, request: str) -> int:
    """How many of a request's drafts of a call are sent: mostly all, and any number."""
    return DRAFTS if (call + int(request[1:])) % 3 else call % (DRAFTS + 1)


def sampled_ids(call: int, request: str) -> list[int]:
    """What the verifiers sample in a call."""
    return [-token for token in draft_ids(call, request)] + [1]


def drawn(step: lanes.Step) -> list[str]:
    """Requests of a call whose drafts are drawn from proposals: every third one, from r2 on."""
    return [name for name in step.num_scheduled_tokens if int(name[1:]) % 3 == 2]


def proposals_of(call: int, requests: Sequence[str]) -> Tensor:
    """[requests, DRAFTS, 1] what stands for proposals in a call."""
    return torch.tensor([[[call + int(name[1:]) / 1000]] * DRAFTS for name in requests], dtype=torch.float64)


def table(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int32)


class MemoryLink:
    """Both ends of a link within a process.

    Args:
        deadline_s: how long a message may take (seconds).
    """

    def __init__(self, deadline_s: float = 0) -> None:
        self.down: queue.Queue[Tensor | None] = queue.Queue()
        self.up: queue.Queue[Tensor | None] = queue.Queue()
        self._deadline_s = deadline_s

    def send_sampled(self, sampled: Tensor) -> None:
        self.down.put(sampled)

    def expect_sampled(self, requests: int) -> None:
        pass

    def recv_sampled(self, requests: int) -> Tensor:
        return _take(self.down, requests, self._deadline_s)

    def send_drafts(self, drafts: Tensor) -> None:
        self.up.put(drafts)

    def expect_drafts(self, requests: int) -> None:
        pass

    def recv_drafts(self, requests: int) -> Tensor:
        return _take(self.up, requests, self._deadline_s)

    def send_proposals(self, proposals: Tensor) -> None:
        self.up.put(proposals)

    def expect_proposals(self, requests: int, vocabulary: int) -> None:
        pass

    def recv_proposals(self, requests: int, vocabulary: int) -> Tensor:
        message = _take(self.up, requests, self._deadline_s)
        assert message.shape[2] == vocabulary
        return message

    def die(self) -> None:
        """The drafter is gone: nothing comes after what it has sent."""
        self.up.put(None)

    def close(self) -> None:
        pass


class MemoryRelay:
    """A relay within a process, for all its verifiers.

    Args:
        others: verifiers beside the first one.
        deadline_s: how long a message may take (seconds).
    """

    def __init__(self, others: int, deadline_s: float = 0) -> None:
        self.inboxes: list[queue.Queue[Tensor | None]] = [queue.Queue() for _ in range(others)]
        self._deadline_s = deadline_s

    def give(self, drafts: Tensor) -> None:
        for inbox in self.inboxes:
            inbox.put(drafts)

    def of(self, rank: int) -> "MemoryRelayEnd":
        """What verifier `rank`, from 1 on, has of it."""
        return MemoryRelayEnd(self.inboxes[rank - 1], self._deadline_s)


@dataclass
class MemoryRelayEnd:
    """Where one of the other verifiers takes from."""

    inbox: "queue.Queue[Tensor | None]"
    deadline_s: float

    def take(self, requests: int) -> Tensor:
        return _take(self.inbox, requests, self.deadline_s)

    def take_proposals(self, requests: int, vocabulary: int) -> Tensor:
        message = _take(self.inbox, requests, self.deadline_s)
        assert message.shape[2] == vocabulary
        return message


def _take(inbox: "queue.Queue[Tensor | None]", requests: int, deadline_s: float) -> Tensor:
    try:
        message = inbox.get(timeout=deadline_s)
    except queue.Empty:
        raise LinkError("no message") from None
    if message is None:
        raise LinkError("the other side is gone")
    assert message.shape[0] == requests
    return message
