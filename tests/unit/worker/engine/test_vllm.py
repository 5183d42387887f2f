"""What the engine's processes are told before they start."""

import os
import tempfile
from pathlib import Path

import pytest

from worker.engine.protocol import EngineStartError
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.minedraft import config
from worker.minedraft.config import DEADLINE_S, TwoBatchConfig

VLLMS_TIMEOUT = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoBatchConfig:
    """What an engine of two batches is told; `VLLMS_TIMEOUT` is as the test has set it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = VllmEngine(VllmOptions("target", "m", "psd", draft_model="draft"))
    engine._folder = tempfile.TemporaryDirectory()
    with engine._folder, engine._placed(1, cpu=True):
        return config.read()


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
