"""What is broken, when and how hard: a list that the seed alone decides. Pure."""

import hashlib
import random
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What can be broken, and what users do meanwhile."""

    KILL_WORKER = "worker killed (-9)"
    FREEZE_WORKER = "worker frozen"
    ROLL_WORKER = "worker replaced"
    KILL_PRODUCER = "producer killed (-9)"
    REDIS_RESTART = "Redis restarted"
    REDIS_KILL = "Redis killed (-9)"
    REDIS_AWAY = "Redis away for long"
    DISK_FULL = "Redis's disk full"
    OUT_OF_MEMORY = "Redis out of memory"
    TOKENS_DOUBLED = "tokens doubled"
    TOKENS_DELAYED = "tokens delayed"
    TOKENS_LOST = "tokens lost"
    SLOW_NETWORK = "network slow"
    CUT_NETWORK = "network cut"
    DROP_CLIENTS = "all connections closed"
    KILL_CONSUMER = "consumer killed (-9)"
    PAUSE_JOB = "job paused and resumed"
    URGENT_JOB = "urgent job between the others"
    CANCEL_JOB = "job cancelled"


#: Those that a storm has once, whatever its size.
RARE = (Kind.REDIS_AWAY, Kind.URGENT_JOB, Kind.CANCEL_JOB)


#: How long each takes (seconds, least and most); what is not here is over at once.
SPANS: dict[Kind, tuple[float, float]] = {
    Kind.FREEZE_WORKER: (12.0, 16.0),  # longer than a lease
    Kind.REDIS_RESTART: (0.2, 1.5),
    Kind.REDIS_KILL: (0.2, 1.5),
    Kind.REDIS_AWAY: (60.0, 60.0),
    Kind.DISK_FULL: (1.5, 4.0),
    Kind.OUT_OF_MEMORY: (1.5, 4.0),
    Kind.TOKENS_DELAYED: (2.0, 15.0),
    Kind.SLOW_NETWORK: (3.0, 8.0),
    Kind.CUT_NETWORK: (1.0, 14.0),
    Kind.PAUSE_JOB: (1.0, 5.0),
}

#: The ways in which one kind is done.
WAYS: dict[Kind, tuple[str, ...]] = {
    # After a kill in calm the storm waits for the shards to be claimed again, so that nothing else delays it.
    Kind.KILL_WORKER: ("in calm", "in the storm", "in the storm"),
    Kind.CUT_NETWORK: ("reset", "refused", "black hole"),
    Kind.TOKENS_LOST: ("whole", "payload"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is broken.

    Attributes:
        at: when, as a share of all rows that have ended.
        victim: which worker or consumer, where it is one.
        seconds: how long.
        part: how much of it, from 0 to 1, where that means something.
        way: one of `WAYS`.
    """

    at: float
    kind: Kind
    victim: int
    seconds: float
    part: float
    way: str


def make_schedule(seed: int, counts: Mapping[Kind, int], workers: int) -> list[Fault]:
    """So many faults of each kind, in random order, spread over the whole run but its last twentieth."""
    dice = random.Random(seed)
    kinds = [(kind, number) for kind in Kind for number in range(counts.get(kind, 0))]
    dice.shuffle(kinds)
    return [
        Fault(
            at=0.01 + 0.94 * (place + dice.random()) / len(kinds),
            kind=kind,
            victim=dice.randrange(workers),
            seconds=dice.uniform(*SPANS.get(kind, (0.0, 0.0))),
            part=dice.random(),
            way=WAYS[kind][number % len(WAYS[kind])] if kind in WAYS else "",
        )
        for place, (kind, number) in enumerate(kinds)
    ]


def digest(schedule: list[Fault]) -> str:
    """The same for the same list, on every machine."""
    return hashlib.sha256(repr([astuple(fault) for fault in schedule]).encode()).hexdigest()[:12]
