"""What the engine's processes are told before they start."""

import logging
import os
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from worker.engine import gpu_placement, platform, vllm_args, vllm_plugin
from worker.engine.placement import Placement
from worker.engine.protocol import EngineStartError
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.environment import environment
from worker.minedraft import classes, config
from worker.minedraft.config import DEADLINE_S, TwoBatchConfig

VLLMS_TIMEOUT = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"


#: What vLLM's parser makes of an engine's flags.
FLAGS = Namespace(
    tensor_parallel_size=1,
    device_ids=None,
    gpu_memory_utilization=0.92,
    kv_cache_memory_bytes=None,
    enforce_eager=False,
)


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TwoBatchConfig]:
    """What an engine of two batches is told, by its options; `VLLMS_TIMEOUT` is as the test has set it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def read(*, cpu: bool, **options: Any) -> TwoBatchConfig:
        engine = VllmEngine(VllmOptions("target", "m", "psd", draft_model="draft", **options))
        engine._folder = tempfile.TemporaryDirectory()
        with engine._folder, environment(engine._placed(FLAGS, cpu=cpu)):
            return config.read()

    return read


@pytest.fixture
def told(tell: Callable[..., TwoBatchConfig]) -> TwoBatchConfig:
    """What one is told on CPUs."""
    return tell(cpu=True)


@pytest.mark.parametrize(
    ("vllms_s", "ours_s"), [(None, DEADLINE_S), ("", DEADLINE_S), ("300", DEADLINE_S), ("90", 30.0), ("6", 2.0)]
)
def test_a_message_is_given_up_before_vllm_gives_up_its_step(
    vllms_s: str | None, ours_s: float, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Rows go on without the message; without the step the engine ends."""
    monkeypatch.delenv(VLLMS_TIMEOUT, raising=False)
    if vllms_s is not None:
        monkeypatch.setenv(VLLMS_TIMEOUT, vllms_s)
    assert request.getfixturevalue("told").deadline_s == ours_s


@pytest.mark.parametrize("text", ["abc", "0", "-5", "1.5", "1e3", "inf"])
def test_a_limit_of_vllms_that_is_no_time_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv(VLLMS_TIMEOUT, text)
    with pytest.raises(EngineStartError, match=f"{VLLMS_TIMEOUT}={text} is no whole number of seconds"):
        request.getfixturevalue("told")


def test_what_the_processes_are_told_is_gone_once_they_are_started(told: TwoBatchConfig) -> None:
    assert told.verifiers == 1
    assert config.VARIABLE not in os.environ


def test_on_cpus_drafts_go_through_the_host(told: TwoBatchConfig) -> None:
    assert (told.drafter_class, told.link, told.drafter_memory) == (classes.DRAFTER, "host", None)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """GPUs 4 and 5 are free; what was asked when they were given."""
    asked: list[dict[str, Any]] = []

    def place(parsed: Namespace, **options: Any) -> Placement:
        assert parsed is FLAGS
        asked.append(options)
        return Placement(((4,),), (5,))

    monkeypatch.setattr(gpu_placement, "place_engine", place)
    return asked


def test_on_gpus_the_drafter_is_told_its_own(
    tell: Callable[..., TwoBatchConfig], gpus: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told = tell(cpu=False)
    assert (told.verifiers, told.drafter_devices, told.link) == (1, (5,), "nccl")
    assert told.drafter_class == classes.RANKS_V2.drafter
    assert gpus == [{"link": "nccl", "drafter_memory": None, "drafter_cache_given": False}]
    (line,) = caplog.messages
    assert line == "two batches, vLLM's V2 model runner, verifiers on GPU 4, drafter on GPU 5, link nccl"


def test_on_gpus_the_users_settings_are_passed_on(
    tell: Callable[..., TwoBatchConfig], gpus: list[dict[str, Any]]
) -> None:
    told = tell(cpu=False, link="host", drafter_gpu_memory_utilization=0.3, drafter_kv_cache_gib=0.5)
    assert (told.link, told.drafter_memory, told.drafter_kv_cache_bytes) == ("host", 0.3, 512 * 1024**2)
    assert gpus == [{"link": "host", "drafter_memory": 0.3, "drafter_cache_given": True}]


@pytest.mark.parametrize("mode", ["ar", "sd"])
def test_on_gpus_vllm_places_its_own_modes(mode: str, gpus: list[dict[str, Any]]) -> None:
    engine = VllmEngine(VllmOptions("target", "m", mode, draft_model="draft"))  # type: ignore[arg-type]
    assert engine._placed(FLAGS, cpu=False) == {}
    assert gpus == []


class Opened:
    """In place of the processes: what was in the environment while vLLM's flags were read, and when they started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, cpu: bool) -> None:
        self.parsing: dict[str, str] = {}
        self.starting: dict[str, str] = {}
        self.ranks: object = None

        def parse(_: VllmOptions, *, cpu: bool) -> Namespace:
            self.parsing = dict(os.environ)
            return FLAGS

        async def start(_: Namespace, *, two_batches: object) -> None:
            self.starting, self.ranks = dict(os.environ), two_batches

        monkeypatch.setattr(platform, "is_cpu_build", lambda: cpu)
        monkeypatch.setattr(platform, "set_environment", lambda *_, **__: None)
        monkeypatch.setattr(vllm_args, "check_model", lambda _: None)
        monkeypatch.setattr(vllm_args, "parse", parse)
        monkeypatch.setattr(vllm_plugin, "shorten_errors", lambda _: None)
        monkeypatch.setattr("worker.engine.vllm_server.VllmServer.open", start)
        for name in (V2, VLLMS_TIMEOUT):
            monkeypatch.delenv(name, raising=False)


V2 = "VLLM_USE_V2_MODEL_RUNNER"


async def opened(tmp_path: Path, mode: str) -> None:
    engine = VllmEngine(VllmOptions("target", "m", mode, draft_model="draft"))  # type: ignore[arg-type]
    engine._folder = tempfile.TemporaryDirectory(dir=tmp_path)
    with engine._folder:
        await engine._open(str(tmp_path / "errors"))


async def test_on_gpus_all_of_vllm_is_told_of_its_runner_for_as_long_as_it_starts(
    tmp_path: Path, gpus: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Opened(monkeypatch, cpu=False)
    await opened(tmp_path, "psd")
    for environ in (seen.parsing, seen.starting):
        assert (environ[V2], environ[VLLMS_TIMEOUT]) == ("1", "60")
    assert config.VARIABLE in seen.starting
    assert seen.ranks == classes.RANKS_V2
    assert not {V2, VLLMS_TIMEOUT, config.VARIABLE} & os.environ.keys(), "the next engine may be another one"


@pytest.mark.parametrize(("mode", "cpu"), [("psd", True), ("sd", False)])
async def test_no_other_engine_is_told_of_that_runner(
    mode: str, cpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Opened(monkeypatch, cpu=cpu)
    await opened(tmp_path, mode)
    assert not {V2, VLLMS_TIMEOUT} & seen.starting.keys()
    assert seen.ranks == (classes.RANKS if mode == "psd" else None)


async def test_a_user_who_wants_the_other_runner_is_told_before_vllm_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Opened(monkeypatch, cpu=False)
    monkeypatch.setenv(V2, "0")
    with pytest.raises(EngineStartError, match=f"unset {V2}=0"):
        await opened(tmp_path, "psd")
    assert seen.parsing == {}
