"""Folders that are built once and kept: locked, atomic, checked at every start.

Layout below a cache folder, for a store named NAME:

    NAME/                    the finished folder; it only ever appears whole
    NAME/manifest.json       size, time stamp and digest of each of its files
    .NAME.lock               held while building; never removed (removing a lock file is a race)
    .NAME.building-XXXXXX/   a build under way, or what a killed one left; the next build removes it
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_dir
from pydantic import BaseModel

from worker.models.errors import ModelError

#: Tells the user, in one line, what takes time.
Say = Callable[[str], None]

#: Fills its first argument, an empty folder, with files. Its second is an empty folder too, for what it needs
#: on the way: removed afterwards, and on the same disk.
Build = Callable[[Path, Path], None]

MANIFEST = "manifest.json"


class _Stamp(BaseModel):
    """One file as it was when its folder was finished."""

    size: int
    mtime_ns: int
    sha256: str


class _Manifest(BaseModel):
    """Every file of a finished folder, the manifest itself apart, by its path inside the folder."""

    files: dict[str, _Stamp]


def default_cache() -> Path:
    """Where built folders are kept: `MINEDRAFT_CACHE_DIR`, or this user's cache folder."""
    return Path(os.environ.get("MINEDRAFT_CACHE_DIR") or user_cache_dir("minedraft")).expanduser().absolute()


def obtain(cache: Path, name: str, build: Build, *, needs_bytes: int, say: Say) -> Path:
    """The folder `cache/name`, built first where it is missing or damaged.

    Any number of processes may ask at once: one builds, the others wait for it. A build that is killed leaves
    nothing that could be taken for a finished folder.

    Args:
        cache: the folder that holds all built folders; only read when nothing is to be built, else created.
        name: says what the folder holds and in which version, so that another version never finds it.
        build: makes the files.
        needs_bytes: the free space below which a build is not even begun.
        say: is told what takes time.

    Raises:
        ModelError: the folder cannot be built.
    """
    folder = cache / name
    if is_intact(folder):
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f".{name}.lock", say):
            if is_intact(folder):  # another process built it while this one waited
                return folder
            _require_space(cache, needs_bytes)
            if folder.exists():
                say(f"{folder} is damaged; building it again")
            _replace(folder, build)
    except OSError as error:
        raise ModelError(f"cannot build {folder}: {error.strerror or error}") from error
    return folder


def is_intact(folder: Path) -> bool:
    """Whether a finished folder still holds what its manifest says.

    A file with the size and time stamp of the manifest is trusted unread, so this costs no more than a
    look at the folder; one with another time stamp (a copied cache, a changed file) is read and must have the
    digest.
    """
    try:
        manifest = _Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        return all(_matches(folder / path, stamp) for path, stamp in manifest.files.items())
    except (OSError, ValueError):
        return False


def _matches(path: Path, stamp: _Stamp) -> bool:
    stat = path.stat()
    if stat.st_size != stamp.size:
        return False
    return stat.st_mtime_ns == stamp.mtime_ns or _sha256(path) == stamp.sha256


def _replace(folder: Path, build: Build) -> None:
    """Build beside `folder`, then put the result in its place. The caller holds the lock."""
    prefix = f".{folder.name}.building-"
    for left in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix, dir=folder.parent) as temp:
        new, scratch = Path(temp, "new"), Path(temp, "scratch")
        new.mkdir()
        scratch.mkdir()
        build(new, scratch)
        _seal(new)
        if folder.exists():
            folder.rename(Path(temp, "old"))
        new.rename(folder)
        _fsync(folder.parent)


def _seal(folder: Path) -> None:
    """Write the manifest once everything it names is on the disk."""
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        _fsync(path)
        stat = path.stat()
        stamp = _Stamp(size=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=_sha256(path))
        files[str(path.relative_to(folder))] = stamp
    (folder / MANIFEST).write_text(_Manifest(files=files).model_dump_json(indent=1), encoding="utf-8")
    _fsync(folder / MANIFEST)
    _fsync(folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_space(cache: Path, needs_bytes: int) -> None:
    free = shutil.disk_usage(cache).free
    if free < needs_bytes:
        raise ModelError(
            f"not enough disk space in {cache}: {needs_bytes / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free"
            " (MINEDRAFT_CACHE_DIR names another folder)"
        )


@contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    """Hold a lock between processes; the system frees it when the process ends, however it ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is building {path.name.strip('.').removesuffix('.lock')}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
