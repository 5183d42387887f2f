"""A user's shell for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from shell import Shell, shell_in


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with shell_in(tmp_path) as made:
        yield made
