"""Which devices each rank computes on, and how a machine's cores are shared out. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from worker.engine.protocol import EngineStartError

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices by rank.

    Attributes:
        verifiers: of each rank of the target model.
        drafter: of the draft model's rank; empty: there is none.
    """

    verifiers: tuple[tuple[int, ...], ...]
    drafter: tuple[int, ...] = ()

    @property
    def omp_bind(self) -> str:
        """The verifiers' cores in vLLM's notation: `0,1|2,3`."""
        return "|".join(",".join(map(str, rank)) for rank in self.verifiers)


def parse_devices(text: str) -> tuple[int, ...]:
    """Read `0,2-4` as (0, 2, 3, 4).

    Raises:
        ValueError: it is not a list of numbers and ranges, or names one twice.
    """
    devices: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"{text!r} is not a list like 0,2-4")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{part.strip()!r} counts backwards")
        devices.extend(range(first, last + 1))
    if len(set(devices)) < len(devices):
        raise ValueError(f"{text!r} names a device twice")
    return tuple(devices)


def place(
    cores: Sequence[int],
    ranks: int,
    *,
    drafter: bool,
    verifier_cpus: Sequence[int] = (),
    drafter_cpus: Sequence[int] = (),
) -> Placement:
    """Share out a machine's cores.

    By default every rank gets equally many, and one is left to the front end, the scheduler and Redis where there is
    one to spare. Where there are more ranks than cores, ranks share a core.

    Args:
        cores: those that this process may use.
        ranks: of the target model.
        drafter: whether there is a rank for the draft model, too.
        verifier_cpus: what the user gives the target model; divided evenly among its ranks.
        drafter_cpus: what the user gives the draft model.

    Raises:
        EngineStartError: what the user gives does not go round.
    """
    if missing := sorted({*verifier_cpus, *drafter_cpus} - set(cores)):
        raise EngineStartError(f"this process may not use core {missing[0]}, only {', '.join(map(str, cores))}")
    if drafter_cpus and not drafter:
        raise EngineStartError("--drafter-cpus is for --mode psd: the other modes have no drafter of its own")
    if not verifier_cpus and not drafter_cpus:
        return _default(cores, ranks, drafter=drafter)
    rest = [core for core in cores if core not in {*verifier_cpus, *drafter_cpus}]
    target = list(verifier_cpus) or rest
    if len(target) < ranks or (verifier_cpus and len(target) % ranks):
        raise EngineStartError(f"{len(target)} cores cannot be divided evenly among {ranks} verifiers")
    share = len(target) // ranks
    if drafter and not drafter_cpus and not rest:
        raise EngineStartError("no core is left for the drafter: --drafter-cpus")
    return Placement(
        tuple(tuple(target[rank * share : (rank + 1) * share]) for rank in range(ranks)),
        tuple(drafter_cpus or rest) if drafter else (),
    )


def _default(cores: Sequence[int], ranks: int, *, drafter: bool) -> Placement:
    lanes = ranks + drafter
    usable = cores[:-1] if len(cores) > lanes else cores
    share = len(usable) // lanes
    if share == 0:  # unbound, each rank would start a thread for every core
        usable, share = [cores[lane % len(cores)] for lane in range(lanes)], 1
    shares = tuple(tuple(usable[lane * share : (lane + 1) * share]) for lane in range(lanes))
    return Placement(shares[:ranks], shares[-1] if drafter else ())
