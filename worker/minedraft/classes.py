"""Where vLLM finds the two-batch engine's classes, in its own notation. Imports no vLLM: its flags name them."""

from dataclasses import dataclass

EXECUTOR = "worker.minedraft.executor.MineDraftExecutor"
SCHEDULER = "worker.minedraft.scheduler.TwoBatchScheduler"
VERIFIER = "worker.minedraft.verifier.VerifierWorker"
DRAFTER = "worker.minedraft.drafter.DrafterWorker"


@dataclass(frozen=True, slots=True)
class Ranks:
    """The worker classes of the ranks; others stand for other devices (`worker/lab/virtual.py`)."""

    verifier: str = VERIFIER
    drafter: str = DRAFTER


RANKS = Ranks()
