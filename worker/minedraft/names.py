"""What the processes of the two-batch engine are called, in `ps`, logs and messages; how it is said that one ended."""

import multiprocessing

import setproctitle
from vllm.utils.system_utils import decorate_logs

from worker.minedraft import stages

ENGINE = "minedraft::engine"
DRAFTER = f"minedraft::{stages.DRAFTER}"
#: A process that dies closes its pipes a moment before the system has its exit code (seconds).
REAP_S = 1.0


class RankDied(Exception):  # noqa: N818 - a state, named as what it says
    """One of the engine's processes ended by itself; the message says which, and how."""


def ended(name: str, code: int | None) -> str:
    """How a process ended, in words."""
    return f"{name} was killed by signal {-code}" if code and code < 0 else f"{name} ended with exit code {code}"


def verifier(rank: int) -> str:
    """The name of a rank of the target model."""
    return f"minedraft::{stages.verifier_name(rank)}"


def call_this_process(name: str) -> None:
    """Name this process, for the system and for its own logs (vLLM calls every worker `VLLM::Worker`)."""
    multiprocessing.current_process().name = name
    setproctitle.setproctitle(name)
    decorate_logs(name)
