"""What this project adds to the processes that vLLM starts: `register` is one of vLLM's general plugins.

vLLM calls it in each of its processes (entry point group `vllm.general_plugins`); it does nothing in those of
other programs. Imports nothing but the standard library, and stays that way: it runs first thing in each process.
"""

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing import active_children, current_process, parent_process
from pathlib import Path

#: Set by the process that owns the engine: its process id, and where the engine's processes leave their errors.
OWNER, ERRORS = "MINEDRAFT_ENGINE_OWNER", "MINEDRAFT_ENGINE_ERRORS"
#: How the name of an engine's own folder begins, in which that file of errors lies.
FOLDER_PREFIX = "minedraft-"
#: How long a process whose parent has died may take to end by itself (seconds).
GRACE_S = 5.0

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is where Linux keeps shared memory


def register() -> None:
    """Make this process, if it is one of our engine's, leave its errors and end with the engine's owner."""
    owner = os.environ.get(OWNER)
    if owner is None or int(owner) == os.getpid():
        return
    shorten_errors(os.environ[ERRORS])
    if int(owner) == os.getppid():  # the engine core; its workers are born into its group
        # Ctrl-C goes to every process of the terminal's group, but the owner decides when its engine ends.
        os.setpgid(0, 0)
        # Where its ranks meet vLLM keeps a file, which stays when they are killed; this folder goes with the engine.
        tempfile.tempdir = str(Path(os.environ[ERRORS]).parent)
    threading.Thread(target=_end_with_parent, name="minedraft-parent-watch", daemon=True).start()


def _end_with_parent() -> None:
    """End when the process that started this one has died.

    vLLM's engine core outlives an owner that was killed, for ever, with its memory and its devices; and its workers
    do not look after it while they load a model.
    """
    parent = parent_process()
    if parent is None:
        return
    parent.join()
    folder = Path(os.environ[ERRORS]).parent
    if parent.pid == int(os.environ[OWNER]) and folder.name.startswith(FOLDER_PREFIX):
        clean_up(folder)  # which its owner can no longer do
        shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)  # vLLM's way: stop, and end those below
    time.sleep(GRACE_S)
    for child in active_children():  # which do not watch anybody yet while they import
        child.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def clean_up(folder: Path) -> None:
    """Remove what killed ranks left in shared memory, by the name of the file in `folder` where they met (CPUs)."""
    for file in folder.glob("vllm_dist_*"):
        for left in _SHARED_MEMORY.glob(f"{file.name}-*"):
            left.unlink(missing_ok=True)


def shorten_errors(path: str) -> None:
    """Log vLLM's errors as one line each, unless its log level shows more than warnings; leave them in a file too.

    An exception passes through several processes of vLLM, and each prints its whole traceback.
    """
    for handler in logging.getLogger("vllm").handlers:
        if not any(isinstance(present, _OneLineErrors) for present in handler.filters):
            handler.addFilter(_OneLineErrors(path, shorten=handler.level >= logging.WARNING))


def engine_folder() -> Path | None:
    """The folder of the engine that this process belongs to; None in a process of none."""
    errors = os.environ.get(ERRORS)
    return None if errors is None else Path(errors).parent


def first_error(path: str) -> str | None:
    """The error that one of the engine's processes met first, in one line: the others follow from it."""
    try:
        with Path(path).open(encoding="utf-8") as errors:
            return errors.readline().strip() or None
    except FileNotFoundError:
        return None


def forget_errors() -> None:
    """Nothing follows any more from the errors so far: what comes next is told for itself (an engine's processes)."""
    if path := os.environ.get(ERRORS):
        Path(path).unlink(missing_ok=True)


class _OneLineErrors(logging.Filter):
    def __init__(self, path: str, *, shorten: bool) -> None:
        super().__init__()
        self._path, self._shorten = path, shorten

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line = " ".join(f"{_rank()}{type(error).__name__}: {error}".split())
            with suppress(OSError), Path(self._path).open("a", encoding="utf-8") as errors:
                errors.write(f"{line}\n")
            if self._shorten:
                record.msg, record.args = f"{record.getMessage()} {line}", ()
                record.exc_info = record.exc_text = None
                if record.funcName == "run_engine_core":
                    # The process ends now, and multiprocessing would print the traceback once more.
                    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        return not (self._shorten and record.module == "dump_input")  # pages of state, when an engine dies


def _rank() -> str:
    """Whose error it is, where the engine has ranks with names (`worker/minedraft/names.py`)."""
    name = current_process().name
    return f"{name}: " if name.startswith("minedraft::") and name != "minedraft::engine" else ""
