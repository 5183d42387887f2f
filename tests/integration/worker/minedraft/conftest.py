from pathlib import Path

import pytest

from worker.lab.pairs import build_pair


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and a drafter that it often agrees with."""
    return build_pair(tmp_path_factory.mktemp("pair"))
