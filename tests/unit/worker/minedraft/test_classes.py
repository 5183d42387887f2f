"""What vLLM's flags name."""

import pytest
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.executor import Executor
from vllm.v1.worker.worker_base import WorkerBase

from worker.minedraft.classes import EXECUTOR, RANKS, RANKS_V2, Ranks, on_platform


@pytest.mark.parametrize("ranks", [RANKS, RANKS_V2])
def test_what_is_named_is_there(ranks: Ranks) -> None:
    for name, kind in (
        (EXECUTOR, Executor),
        (ranks.scheduler, Scheduler),
        (ranks.verifier, WorkerBase),
        (ranks.drafter, WorkerBase),
    ):
        assert issubclass(resolve_obj_by_qualname(name), kind)


def test_each_platform_has_classes_of_its_own() -> None:
    assert on_platform(Ranks(), cpu=True) == RANKS
    assert on_platform(Ranks(), cpu=False) == RANKS_V2


@pytest.mark.parametrize("cpu", [True, False])
def test_other_classes_stand_for_themselves(cpu: bool) -> None:
    for others in (Ranks("its.Verifier"), RANKS_V2):
        assert on_platform(others, cpu=cpu) == others
