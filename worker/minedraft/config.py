"""What the processes of a two-batch engine are told beyond vLLM's own configuration: one environment variable.

vLLM's `additional_config` would do, but a user's own would replace it, and it enters the hash of compiled code.
"""

import json
import os
import uuid
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path

from worker.minedraft.classes import DRAFTER
from worker.strategies.seam import Strategy

VARIABLE = "MINEDRAFT_TWO_BATCHES"

#: How long one message between ranks may take (seconds): longer than any step, prefills included.
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class TwoBatchConfig:
    """How to run the drafter, and where to leave what the ranks measure.

    Attributes:
        folder: where the ranks meet and leave their stages; new for each engine, on this host.
        verifiers: ranks that share the target model.
        drafter_devices: the cores, or the GPU, that the drafter computes on; none: not bound.
        drafter_class: of the drafter's worker.
        drafter_kv_cache_bytes: memory of the draft model's KV cache; None: as much as each verifier's.
        deadline_s: how long one message between ranks may take (seconds).
        link: what carries messages between the first verifier and the drafter: `nccl` or `host`.
        drafter_memory: the share of its GPU's memory that the drafter may use, above 0 and at most 1; None: as much as
            a verifier of its own.
        strategy: how rows take turns, where their drafts are from, and which are verified.
    """

    folder: str
    verifiers: int
    drafter_devices: tuple[int, ...] = ()
    drafter_class: str = DRAFTER
    drafter_kv_cache_bytes: int | None = None
    deadline_s: float = DEADLINE_S
    link: str = "host"
    drafter_memory: float | None = None
    strategy: Strategy = field(default_factory=Strategy)

    @property
    def deadline(self) -> timedelta:
        """`deadline_s`."""
        return timedelta(seconds=self.deadline_s)

    @property
    def outlives_drafter(self) -> bool:
        """Whether rows go on when the drafter is lost.

        A message through the host fails when its time is over; NCCL's waits on the GPU for ever, so the engine ends.
        """
        return self.link == "host"

    @property
    def address(self) -> str:
        """Where the ranks meet."""
        return f"{self.folder}/link"

    def new_address(self) -> str:
        """Where they meet when another drafter joins: a file that no rank has written yet."""
        return f"{self.address}-{uuid.uuid4().hex}"

    def publish(self, environ: MutableMapping[str, str]) -> None:
        """Leave it for the processes that are started next."""
        environ[VARIABLE] = json.dumps(asdict(self))


def folder() -> Path | None:
    """The folder of the engine that this process belongs to; None when it belongs to none."""
    return Path(read().folder) if VARIABLE in os.environ else None


def strategy() -> Strategy:
    """The strategy of the engine that this process belongs to; the usual one when it belongs to none."""
    return read().strategy if VARIABLE in os.environ else Strategy()


def read() -> TwoBatchConfig:
    """The configuration of the engine that this process belongs to.

    Raises:
        RuntimeError: this process belongs to none.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        raise RuntimeError(f"{VARIABLE} is not set: the two-batch engine is started by `worker run --mode psd`")
    fields = json.loads(text)
    devices, strategy = tuple(fields["drafter_devices"]), Strategy(**fields["strategy"])
    return TwoBatchConfig(**{**fields, "drafter_devices": devices, "strategy": strategy})
