import os
import stat
from pathlib import Path

import pytest

from producer.server.errors import ServerError
from producer.server.place import default_data_dir, make_private, refuse_shared, socket_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_default_data_dir(monkeypatch):
    monkeypatch.setenv("MINEDRAFT_DATA_DIR", "/data/x")
    assert default_data_dir() == Path("/data/x/redis")
    monkeypatch.setenv("MINEDRAFT_DATA_DIR", "")
    monkeypatch.setenv("XDG_DATA_HOME", "/home/me/share")
    assert default_data_dir() == Path("/home/me/share/minedraft/redis")


def test_the_socket_is_in_the_data_dir_where_its_path_is_short_enough():
    assert socket_path(Path("/data")) == Path("/data/redis.sock")
    longest = Path("/" + "x" * (103 - len("//redis.sock")))
    assert socket_path(longest) == longest / "redis.sock"
    assert socket_path(Path(f"{longest}x")).parent.parent == Path("/tmp")
    assert socket_path(Path("/" + "é" * 60)).parent.parent == Path("/tmp")  # bytes count, not characters


def test_a_socket_elsewhere_is_this_users_and_this_data_dirs_own(monkeypatch):
    one, other = Path("/" + "x" * 200), Path("/" + "y" * 200)
    assert socket_path(one) == socket_path(one)
    assert socket_path(one) != socket_path(other)
    assert f"-{os.getuid()}-" in str(socket_path(one))
    monkeypatch.setenv("TMPDIR", "/somewhere/else")
    assert socket_path(one).is_relative_to("/tmp")


def test_a_private_directory_is_created_or_tightened(tmp_path):
    make_private(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
    (tmp_path / "a" / "b").chmod(0o755)
    make_private(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700


def test_what_cannot_become_a_private_directory(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ServerError, match=r"cannot use the directory .*file: File exists"):
        make_private(tmp_path / "file")
    with pytest.raises(ServerError, match=r"cannot use the directory .*sub: Not a directory"):
        make_private(tmp_path / "file" / "sub")
    with pytest.raises(ServerError, match="link is not a directory"):
        make_private(tmp_path / "link")
    with pytest.raises(ServerError, match="cannot use the directory"):
        make_private(Path("/proc/nowhere"))


def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(ServerError, match="belongs to another user"):
        make_private(tmp_path)
    with pytest.raises(ServerError, match="belongs to another user"):
        refuse_shared(tmp_path)


def test_where_others_can_write_no_socket_is_trusted(tmp_path):
    refuse_shared(tmp_path / "missing")
    tmp_path.chmod(0o755)
    refuse_shared(tmp_path)
    tmp_path.chmod(0o775)
    with pytest.raises(ServerError, match="other users can write to the directory"):
        refuse_shared(tmp_path)
