"""What the engine's processes are told by an environment variable."""

import pytest

from worker.minedraft import config
from worker.minedraft.config import VARIABLE, TwoBatchConfig
from worker.strategies.seam import Strategy


@pytest.mark.parametrize(
    "settings",
    [
        TwoBatchConfig("/tmp/x", 1),
        TwoBatchConfig("/tmp/é", 2, (4, 5), "its.Drafter", 3 * 1024**3, 0.5, "nccl", 0.25),
        TwoBatchConfig("/tmp/x", 1, strategy=Strategy("auto", "mixed", "adaptive", "tetris", 2)),
    ],
)
def test_what_is_published_is_read(settings: TwoBatchConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    environ: dict[str, str] = {}
    settings.publish(environ)
    monkeypatch.setenv(VARIABLE, environ[VARIABLE])
    assert config.read() == settings
    assert config.strategy() == settings.strategy


def test_rows_outlive_a_drafter_whose_messages_have_a_deadline() -> None:
    """One that waits in NCCL waits on the GPU, for ever."""
    assert TwoBatchConfig("/tmp/x", 1).outlives_drafter
    assert not TwoBatchConfig("/tmp/x", 1, link="nccl").outlives_drafter


def test_a_process_of_no_two_batch_engine_says_how_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert config.strategy() == Strategy()
    with pytest.raises(RuntimeError, match="worker run --mode psd"):
        config.read()
