"""The stage records of an engine that runs on this machine, and files that keep them."""

import json
import os
import tempfile
import time
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from worker.engine.vllm_plugin import FOLDER_PREFIX
from worker.lab.timeline import TraceError
from worker.minedraft.stages import RECORD, SUFFIX, Records, StageReader

#: How often the rings are read (seconds); they hold thousands of calls.
_EVERY_S = 0.2
_PROCESSES = Path("/proc")
#: What else a file holds beside the rings.
_META = "meta"


def engines() -> list[Path]:
    """The folders of this user's engines whose ranks run, the newest first."""
    in_use = _mapped()
    rings = [ring for ring in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/*{SUFFIX}") if str(ring) in in_use]
    made = {ring.parent: ring.parent.stat().st_mtime_ns for ring in rings}
    return sorted(made, key=lambda folder: made[folder], reverse=True)


def choose(wanted: Path | None) -> Path:
    """An engine's folder: the wanted one, or the only one there is.

    Raises:
        TraceError: there is none, or it must be said which.
    """
    if wanted is not None:
        if not any(wanted.glob(f"*{SUFFIX}")):
            raise TraceError(f"{wanted} is no engine's folder: it has no files of stages (*{SUFFIX})")
        return wanted
    found = engines()
    if not found:
        raise TraceError("no engine that writes stages runs here as this user")
    if len(found) > 1:
        raise TraceError(f"more than one engine runs here; which one? {', '.join(map(str, found))}")
    return found[0]


class StageLog:
    """Keeps all records of an engine until they are taken (`worker.engine.vllm.StageFollower`)."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._readers: dict[str, StageReader] = {}
        self._pieces: dict[str, list[Records]] = {}

    @property
    def lost(self) -> int:
        """Records of this engine that were overwritten before they were read."""
        return sum(reader.lost for reader in self._readers.values())

    def follow(self, folder: Path) -> None:
        """The rings of a new engine are in `folder`."""
        self._folder, self._readers = folder, {}

    def update(self) -> None:
        """Read what is new.

        Raises:
            TraceError: a ring is of another version.
        """
        if self._folder is None:
            return
        for ring in self._folder.glob(f"*{SUFFIX}"):  # the ranks make them one by one while they start
            self._readers.setdefault(ring.stem, StageReader(ring))
        try:
            for rank, reader in self._readers.items():
                self._pieces.setdefault(rank, []).append(reader.read())
        except ValueError as error:
            raise TraceError(str(error)) from None

    def take(self) -> dict[str, Records]:
        """The records of each rank since this was last called, by its name, oldest first."""
        self.update()
        pieces, self._pieces = self._pieces, {}
        return {rank: np.concatenate(of_rank) for rank, of_rank in pieces.items()}


def follow(folder: Path, seconds: float) -> dict[str, Records]:
    """What all ranks of an engine do from now on, for so long; what they did before is left out.

    Returns:
        The records of each rank, by its name, oldest first.

    Raises:
        TraceError: nothing happened in that time, or another version writes there.
    """
    log = StageLog()
    log.follow(folder)
    log.take()
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _EVERY_S))
        log.update()
    followed = log.take()
    if not any(len(records) for records in followed.values()):
        raise TraceError(f"nothing happened in {seconds:g} s: the engine in {folder} has no rows, or has ended")
    return followed


def save(path: Path, records: Mapping[str, Records], meta: Mapping[str, Any]) -> None:
    """Keep records, and what JSON can say about them, in a file of numpy's `.npz` format.

    Raises:
        OSError: it cannot be written.
    """
    arrays: dict[str, Any] = {_META: np.array(json.dumps(dict(meta))), **records}
    with path.open("wb") as file:  # numpy would add a suffix to a name
        np.savez_compressed(file, **arrays)


def load(path: Path) -> tuple[dict[str, Records], dict[str, Any]]:
    """The records and the rest that `save` kept.

    Raises:
        OSError: it cannot be read.
        TraceError: it is no such file, or another version wrote it.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays.pop(_META)))
        _ = meta["title"], meta["virtual"]
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error, EOFError):
        raise TraceError(f"{path} is no file of stage records") from None
    if any(records.dtype != RECORD for records in arrays.values()):
        raise TraceError(f"{path} holds stage records of another version")
    return arrays, meta


def _mapped() -> set[str]:
    """The files that processes of this user have in memory; a folder may outlive an engine that was killed."""
    files: set[str] = set()
    for process in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if process.stat().st_uid == os.getuid():
                lines = (process / "maps").read_text(errors="replace").splitlines()
                files.update(line.split(maxsplit=5)[-1] for line in lines if line.endswith(SUFFIX))
    return files
