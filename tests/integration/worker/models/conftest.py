import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.models.embedded import embedded_model


@pytest.fixture(scope="session")
def fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty cache folder, removed at the end: half a gigabyte a run would add up."""
    cache = tmp_path_factory.mktemp("cache")
    yield cache
    shutil.rmtree(cache)


@pytest.fixture(scope="session")
def fresh_model(fresh_cache: Path) -> Path:
    """The embedded model, built for this run by the code under test, not taken from the user's cache."""
    return embedded_model(fresh_cache, say=print)
