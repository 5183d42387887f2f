"""Where vLLM finds the two-batch engine's classes, in its own notation. Imports no vLLM: its flags name them."""

from dataclasses import dataclass
from typing import Literal

EXECUTOR = "worker.minedraft.executor.MineDraftExecutor"
SCHEDULER = "worker.minedraft.scheduler.TwoBatchScheduler"
VERIFIER = "worker.minedraft.ranks_v1.VerifierWorker"
DRAFTER = "worker.minedraft.ranks_v1.DrafterWorker"


@dataclass(frozen=True, slots=True)
class Ranks:
    """The classes of an engine; others stand for other devices (`worker/lab/virtual.py`).

    Attributes:
        verifier: the worker of each rank of the target model.
        drafter: the worker of the draft model's rank.
        scheduler: which rows are in a call.
        runner: the model runner of vLLM that all of them are made for.
    """

    verifier: str = VERIFIER
    drafter: str = DRAFTER
    scheduler: str = SCHEDULER
    runner: Literal["V1", "V2"] = "V1"


#: On CPUs.
RANKS = Ranks()
#: On GPUs.
RANKS_V2 = Ranks(
    verifier="worker.minedraft.ranks_v2.VerifierWorker",
    drafter="worker.minedraft.ranks_v2.DrafterWorker",
    scheduler="worker.minedraft.scheduler_v2.AsyncTwoBatchScheduler",
    runner="V2",
)


def on_platform(ranks: Ranks, *, cpu: bool) -> Ranks:
    """The same on a platform: on GPUs those of GPUs in place of those of CPUs; any others stay what they are.

    Args:
        ranks: the classes that an engine is to have.
        cpu: whether this is vLLM's CPU build.
    """
    return RANKS_V2 if ranks == RANKS and not cpu else ranks
