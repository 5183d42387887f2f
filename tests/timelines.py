"""Made-up stage records of engines that do what the protocol says, at a set speed."""

import random
from collections.abc import Mapping

import numpy as np

from worker.minedraft.stages import DRAFTER, ENGINE, RECORD, Records, Stage, verifier_name
from worker.strategies.seam import Way

MS = 1_000_000
#: Calls that read prompts, at the start.
READING = 2
REQUESTS = 32
DRAFTS = 3
ACCEPTED = (24, 17, 11)


class _Times:
    """The records of a rank, by call."""

    def __init__(self) -> None:
        self.records: dict[int, np.void] = {}

    def put(self, call: int, stage: Stage, begin: float, ms: float) -> float:
        """Enter a stage; when it ends."""
        record = self.records.setdefault(call, np.zeros(1, RECORD)[0])
        reading = call <= READING
        record["call"], record["requests"], record["prefill"] = call, REQUESTS, REQUESTS if reading else 0
        record["tokens"] = REQUESTS * (20 if reading else 1 + DRAFTS)
        record["begin"][stage], record["end"][stage] = int(begin * MS), int((begin + ms) * MS)
        return begin + ms

    def verify(self, call: int, begin: float, ms: float) -> float:
        """Enter a pass; when it ends."""
        begin = self.put(call, Stage.PREPARE, begin, 0.04 * ms)
        begin = self.put(call, Stage.FORWARD, begin, 0.9 * ms)
        return self.put(call, Stage.SAMPLE, begin, 0.06 * ms)

    def accept(self, call: int) -> None:
        """Say that drafts were verified, and what came of it."""
        if call > READING:
            record = self.records[call]
            record["drafted"], record["drafted_at"][:DRAFTS] = REQUESTS * DRAFTS, REQUESTS
            record["accepted"][:DRAFTS] = ACCEPTED

    def array(self) -> Records:
        """All of them."""
        return np.array(list(self.records.values()), RECORD)


def two_batches(calls: int = 40, *, verify: float = 25, draft: float = 22, jitter: float = 0.05) -> dict[str, Records]:
    """Mode psd; times in ms."""
    rng = random.Random(7)
    engine, verifier, drafter = _Times(), _Times(), _Times()
    free, drafter_free, arrived = 1000.0, 1000.0, {}
    for call in range(1, calls + 1):
        scale = rng.uniform(1 - jitter, 1 + jitter) * (2.5 if call <= READING else 1)
        engine.put(call, Stage.UPDATE, engine.put(call, Stage.SCHEDULE, free + 0.2, 0.8) + 0.3, 1.1)
        begin = max(free, arrived.get(call - 2, 0)) + 0.4
        verifier.put(call, Stage.RECV, free + 0.2, begin - free - 0.2)
        free = verifier.verify(call, begin, verify * scale)
        sent = verifier.put(call, Stage.SEND, free, 0.2)
        got = max(sent, drafter_free + 0.5) + 0.1
        drafter.put(call, Stage.PREPARE, drafter_free + 0.1, 0.4)
        drafter.put(call, Stage.RECV, drafter_free + 0.5, got - drafter_free - 0.5)
        drafted = drafter.put(call, Stage.DRAFT, got, draft * scale * rng.uniform(1 - jitter, 1 + jitter))
        arrived[call] = drafter_free = drafter.put(call, Stage.SEND, drafted, 0.2)
        verifier.accept(call)
    return {verifier_name(0): verifier.array(), DRAFTER: drafter.array(), ENGINE: engine.array()}


def ahead(calls: int = 40, *, verify: float = 25, draft: float = 22) -> dict[str, Records]:
    """Mode pearl: the drafter begins with the pass, and sends once it knows what was sampled; times in ms."""
    verifier, drafter = _Times(), _Times()
    free = 1000.0
    for call in range(1, 2 * calls + 1, 2):  # one batch, and so every second number
        begin = free + 2
        free = verifier.verify(call, begin, verify)
        sent = verifier.put(call, Stage.SEND, free, 0.2)
        drafted = drafter.put(call, Stage.DRAFT, begin + 0.5, draft)
        drafter.put(call, Stage.SEND, drafter.put(call, Stage.RECV, drafted, max(0, sent - drafted) + 0.1), 0.2)
        verifier.accept(call)
    records = {verifier_name(0): verifier.array(), DRAFTER: drafter.array()}
    for of_rank in records.values():
        of_rank["way"], of_rank["asked"] = Way.AHEAD, 1 + DRAFTS
    return records


def one_batch(calls: int = 40, *, verify: float = 25, draft: float = 0) -> dict[str, Records]:
    """Mode sd, or ar where nothing is drafted; times in ms."""
    engine, verifier = _Times(), _Times()
    free = 1000.0
    for call in range(1, calls + 1):
        engine.put(call, Stage.SCHEDULE, free + 0.1, 0.8)
        free = verifier.verify(call, free + 1, verify * (2.5 if call <= READING else 1))
        if draft:
            free = verifier.put(call, Stage.DRAFT, free, draft)
            verifier.accept(call)
        free = engine.put(call, Stage.UPDATE, free + 0.1, 1.1)
    return {verifier_name(0): verifier.array(), ENGINE: engine.array()}


def cut(records: Mapping[str, Records], first: int, last: int) -> dict[str, Records]:
    """The records of calls from `first` to `last`."""
    return {rank: of[(of["call"] >= first) & (of["call"] <= last)] for rank, of in records.items()}
