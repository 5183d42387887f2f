"""Calls as the two-batch scheduler makes them, without a scheduler, and a link without a wire."""

import queue
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from worker.minedraft.link import LinkError

DRAFTS = 3


@dataclass
class Step:
    """What a lane reads of vLLM's `SchedulerOutput`."""

    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)
    finished_req_ids: set[str] = field(default_factory=set)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())


def step(drafted: dict[str, int] | None = None, *, reading: dict[str, int] | None = None, finished: str = "") -> Step:
    """One call.

    Args:
        drafted: how many placeholders each decoding request has.
        reading: how many tokens of its prompt each other request reads.
        finished: names of requests that have ended, with spaces between.
    """
    drafted, reading = drafted or {}, reading or {}
    return Step(
        {**{name: 1 + drafts for name, drafts in drafted.items()}, **reading},
        {name: [-1] * drafts for name, drafts in drafted.items() if drafts},
        set(finished.split()),
    )


@dataclass
class _Life:
    """A request of the imagined engine: the calls in which it still reads its prompt, and when it may run again."""

    reads: int
    structured: bool
    due: int = 0
    last: int = 0


def lives(seed: int, calls: int) -> Iterator[Step]:
    """What an engine may ask for, at random; in the end all requests have ended, and the last call is empty.

    Requests join, read prompts in consecutive calls, decode in every second one or wait one more, are preempted and
    resume, end, are aborted while a call is under way, and come back under the same name. vLLM writes placeholders
    for requests that join or resume with one token to read, too.

    Args:
        seed: of the random choices.
        calls: how many before the last.
    """
    chance = random.Random(seed)
    running: dict[str, _Life] = {}
    preempted: dict[str, _Life] = {}
    for call in range(1, calls + 1):
        made = Step()
        for pool in (running, preempted):
            for name, life in list(pool.items()):
                if chance.random() < (0.1 if life.last <= call - 2 else 0.03):
                    made.finished_req_ids.add(name)
                    del pool[name]
        for name in [name for name in running if chance.random() < 0.05]:
            preempted[name] = running.pop(name)
        for name, life in running.items():
            held = not life.reads and chance.random() < 0.1
            if life.due <= call and not held:
                placeholders = 0 if life.structured else chance.choice([DRAFTS, DRAFTS, 1])
                _schedule(made, name, life, call, placeholders)
        for name in [name for name, life in preempted.items() if life.last <= call - 2 and chance.random() < 0.5]:
            life = running[name] = preempted.pop(name)
            life.reads = chance.randrange(3)
            _schedule(made, name, life, call, DRAFTS)
        for name in (f"r{number}" for number in range(8)):
            if name not in running and name not in preempted and chance.random() < 0.1:
                life = running[name] = _Life(chance.randrange(4), chance.random() < 0.2)
                _schedule(made, name, life, call, DRAFTS)
        yield made
    yield Step(finished_req_ids={*running, *preempted})


def _schedule(made: Step, name: str, life: _Life, call: int, placeholders: int) -> None:
    if life.reads:
        made.num_scheduled_tokens[name] = 16
        life.reads -= 1
    else:
        made.num_scheduled_tokens[name] = 1 + placeholders
        if placeholders:
            made.scheduled_spec_decode_tokens[name] = [-1] * placeholders
    life.last, life.due = call, call + (1 if life.reads else 2)


def draft_ids(call: int, request: str) -> list[int]:
    """What the drafter drafts in a call, each time something else, and never 0."""
    return [1 + call * 10_000 + int(request[1:]) * 10 + position for position in range(DRAFTS)]


def sampled_ids(call: int, request: str) -> list[int]:
    """What the verifiers sample in a call."""
    return [-token for token in draft_ids(call, request)] + [1]


def table(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int32)


class MemoryLink:
    """One rank's end of a link within a process.

    Args:
        down: what verifier 0 sends.
        up: what the drafter sends, to each verifier.
        rank: of a verifier; None: the drafter.
        deadline_s: how long a message may take (seconds).
    """

    def __init__(
        self, down: "queue.Queue[Tensor]", up: "Sequence[queue.Queue[Tensor]]", rank: int | None, deadline_s: float
    ) -> None:
        self._down, self._up, self._rank, self._deadline_s = down, up, rank, deadline_s

    def send_sampled(self, sampled: Tensor) -> None:
        assert self._rank == 0
        self._down.put(sampled)

    def expect_sampled(self, requests: int) -> None:
        assert self._rank is None

    def recv_sampled(self, requests: int) -> Tensor:
        assert self._rank is None
        return self._take(self._down, requests)

    def send_drafts(self, drafts: Tensor) -> None:
        assert self._rank is None
        for to in self._up:
            to.put(drafts)

    def expect_drafts(self, requests: int) -> None:
        assert self._rank is not None

    def recv_drafts(self, requests: int) -> Tensor:
        assert self._rank is not None
        return self._take(self._up[self._rank], requests)

    def close(self) -> None:
        pass

    def _take(self, inbox: "queue.Queue[Tensor]", requests: int) -> Tensor:
        try:
            message = inbox.get(timeout=self._deadline_s)
        except queue.Empty:
            raise LinkError("no message") from None
        assert message.shape[0] == requests
        return message
