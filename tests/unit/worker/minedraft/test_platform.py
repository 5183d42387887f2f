"""Where a process that is started computes."""

import os
import subprocess
import sys
from functools import cache
from types import SimpleNamespace as Thing

import pytest
from vllm import envs

from worker.minedraft.platform import Devices

#: What vLLM reads of a `VllmConfig` of one rank.
CONFIG = Thing(
    parallel_config=Thing(local_world_size=1, data_parallel_rank_local=0, _api_process_count=1),
    kv_transfer_config=None,
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back whatever a failing test leaves."""
    for name in ("OMP_NUM_THREADS", "OMP_PLACES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")


def test_a_process_gets_the_cores_and_what_is_started_next_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before, cores = dict(os.environ), os.sched_getaffinity(0)
    bound: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, chosen: bound.append(chosen))
    with Devices(CONFIG, (2, 3)).chosen():
        assert bound == [(2, 3)]
        assert os.environ["OMP_NUM_THREADS"] == "2"
        assert os.environ["OMP_PLACES"] == "{2,3}"
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "2,3"
    assert dict(os.environ) == before
    assert bound == [(2, 3), cores]


def test_a_process_that_is_started_when_vllm_no_longer_reads_variables_gets_the_same_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the next drafter is: vLLM's engine process keeps what it has read (`enable_envs_cache`)."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    devices = Devices(CONFIG, (2, 3))
    monkeypatch.setattr(envs, "__getattr__", cache(envs.__getattr__))
    assert envs.VLLM_CPU_OMP_THREADS_BIND == "0|1"
    with devices.chosen():
        assert envs.VLLM_CPU_OMP_THREADS_BIND == "0|1", "not read again"
        assert os.environ["OMP_PLACES"] == "{2,3}"


def test_without_cores_it_is_not_bound() -> None:
    with Devices(CONFIG, ()).chosen():
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
        assert "OMP_PLACES" not in os.environ


def test_a_start_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND")
    before = dict(os.environ)
    with pytest.raises(ValueError, match="failed"), Devices(CONFIG, (0,)).chosen():
        raise ValueError("failed")
    assert dict(os.environ) == before


def test_a_gpu_is_not_chosen_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the process's configuration."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("bound"))
    before = dict(os.environ)
    devices = Devices(None, (7,), cpu=False)
    for _ in range(2):
        with devices.chosen():
            assert dict(os.environ) == before


ELSEWHERE = """
import sys
from vllm.platforms import current_platform
from vllm.v1.executor import multiproc_executor
type(current_platform).is_cpu = lambda _: False
from worker.minedraft import executor, platform
assert platform.Devices(None, (7,)).chosen()
assert platform.RankLink
print([name for name in sys.modules if "cpu_worker" in name or "cpu_model_runner" in name])
"""


def test_vllms_other_builds_import_nothing_of_its_cpu_workers() -> None:
    found = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
