"""Where the embedded server keeps its data and its socket: directories that only this user can enter."""

import errno
import hashlib
import os
import stat
from pathlib import Path

import platformdirs

from producer.server.errors import ServerError

DATA_DIR_VARIABLE = "MINEDRAFT_DATA_DIR"

# A Unix socket's path has at most 107 bytes on Linux, 103 on macOS.
_MAX_SOCKET_PATH_BYTES = 103
# Not TMPDIR: that may be long itself, and differ between the processes that must meet at the socket.
_SHORT_DIR = Path("/tmp")  # noqa: S108 - a directory inside it is made private, and checked


def default_data_dir() -> Path:
    """The `redis` directory in `MINEDRAFT_DATA_DIR`, or in this user's data directory where that is unset."""
    base = os.environ.get(DATA_DIR_VARIABLE) or platformdirs.user_data_dir("minedraft", appauthor=False)
    return Path(base) / "redis"


def socket_path(data_dir: Path) -> Path:
    """Where the server of `data_dir` (absolute) listens: in there, or in a directory of its own in /tmp."""
    inside = data_dir / "redis.sock"
    if len(os.fsencode(inside)) <= _MAX_SOCKET_PATH_BYTES:
        return inside
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return _SHORT_DIR / f"minedraft-{os.getuid()}-{digest}" / "redis.sock"


def make_private(directory: Path) -> None:
    """Create the directory where it is missing, and see to it that only this user can enter it.

    Raises:
        ServerError: it cannot be created or written to, or is somebody else's.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _owned(directory)
        directory.chmod(0o700)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it is read-only")
    except OSError as error:
        raise ServerError(f"cannot use the directory {directory}: {error.strerror}") from None


def refuse_shared(directory: Path) -> None:
    """Refuse a directory in which another user could have put a socket of theirs; a missing one is fine.

    Raises:
        ServerError: it is no directory, or somebody else's, or others can write to it.
    """
    try:
        mode = _owned(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ServerError(f"cannot use the directory {directory}: {error.strerror}") from None
    if mode & 0o022:
        raise ServerError(f"other users can write to the directory {directory}; it must have mode 700")


def _owned(directory: Path) -> int:
    """The mode bits of this user's own directory; not through a symbolic link, which others could have made."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ServerError(f"{directory} is not a directory")
    if found.st_uid != os.getuid():
        raise ServerError(f"the directory {directory} belongs to another user")
    return stat.S_IMODE(found.st_mode)
