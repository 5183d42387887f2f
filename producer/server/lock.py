"""A file lock that the server process itself holds for as long as it lives.

The process that starts a server takes the lock and lets the server inherit it. The kernel frees it when the
last process that has it ends, however it ends. So the lock is free if and only if no server runs on the data:
two can never be started, and nobody has to believe a pid file or a socket that a dead server left behind.
"""

import fcntl
import os
from pathlib import Path


def acquire(path: Path) -> int | None:
    """Take the lock: the file descriptor that holds it, for the caller to close, or None if someone has it.

    Raises:
        OSError: the file cannot be opened, or its file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_held(path: Path) -> bool:
    """True while someone has the lock.

    Raises:
        OSError: as `acquire`, except for a file or folder that does not exist.
    """
    if not path.exists():
        return False
    descriptor = acquire(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
