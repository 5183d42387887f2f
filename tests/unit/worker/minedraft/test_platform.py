"""Where a process that is started computes, on CPUs."""

import os
from types import SimpleNamespace as Thing

import pytest

from worker.minedraft.platform import on_devices

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


def test_a_process_gets_the_cores_and_what_is_started_next_does_not() -> None:
    before = dict(os.environ)
    with on_devices(CONFIG, (2, 3)):
        assert os.environ["OMP_NUM_THREADS"] == "2"
        assert os.environ["OMP_PLACES"] == "{2,3}"
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "2,3"
    assert dict(os.environ) == before


def test_without_cores_it_is_not_bound() -> None:
    with on_devices(CONFIG, ()):
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
        assert "OMP_PLACES" not in os.environ


def test_a_start_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND")
    before = dict(os.environ)
    with pytest.raises(ValueError, match="failed"), on_devices(CONFIG, (0,)):
        raise ValueError("failed")
    assert dict(os.environ) == before
