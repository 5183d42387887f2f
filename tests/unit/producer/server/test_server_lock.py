import os
import subprocess

import pytest

from producer.server import lock


def test_only_one_has_it(tmp_path):
    path = tmp_path / "lock"
    assert not lock.is_held(path)
    assert not path.exists()  # asking leaves nothing behind
    held = lock.acquire(path)
    assert held is not None
    assert lock.is_held(path)
    assert lock.acquire(path) is None
    os.close(held)
    assert not lock.is_held(path)


def test_a_process_that_inherits_it_has_it_until_it_ends(tmp_path):
    path = tmp_path / "lock"
    held = lock.acquire(path)
    assert held is not None
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[held])
    os.close(held)
    try:
        assert lock.is_held(path)
    finally:
        child.kill()
        child.communicate()
    assert not lock.is_held(path)


def test_other_children_do_not_inherit_it(tmp_path):
    held = lock.acquire(tmp_path / "lock")
    assert held is not None
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    os.close(held)
    try:
        assert not lock.is_held(tmp_path / "lock")
    finally:
        child.communicate()


def test_a_lock_file_that_cannot_be_opened(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        lock.acquire(tmp_path / "missing" / "lock")
