"""What the engine's processes are told by an environment variable."""

import pytest

from worker.minedraft import config
from worker.minedraft.config import VARIABLE, TwoBatchConfig


@pytest.mark.parametrize(
    "settings",
    [TwoBatchConfig("/tmp/x", 1), TwoBatchConfig("/tmp/é", 2, (4, 5), 3 * 1024**3, 0.5)],
)
def test_what_is_published_is_read(settings: TwoBatchConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    environ: dict[str, str] = {}
    settings.publish(environ)
    monkeypatch.setenv(VARIABLE, environ[VARIABLE])
    assert config.read() == settings


def test_a_process_of_no_two_batch_engine_says_how_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(RuntimeError, match="worker run --mode psd"):
        config.read()
