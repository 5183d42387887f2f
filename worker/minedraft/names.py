"""What the processes of the two-batch engine are called: in `ps`, in the logs, in error messages."""

import multiprocessing

import setproctitle
from vllm.utils.system_utils import decorate_logs

from worker.minedraft import stages

ENGINE = "minedraft::engine"
DRAFTER = f"minedraft::{stages.DRAFTER}"


def verifier(rank: int) -> str:
    """The name of a rank of the target model."""
    return f"minedraft::{stages.verifier_name(rank)}"


def call_this_process(name: str) -> None:
    """Name this process, for the system and for its own logs (vLLM calls every worker `VLLM::Worker`)."""
    multiprocessing.current_process().name = name
    setproctitle.setproctitle(name)
    decorate_logs(name)
