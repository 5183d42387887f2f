"""Whether the drafter is there: a few numbers in memory that the engine's processes share.

The executor and the scheduler (both in the engine process), the first verifier, and the worker's metrics look at the
same file in the engine's folder. Each field has one writer at a time, as the arrows in `State` say.
"""

import mmap
import os
from enum import IntEnum
from pathlib import Path

import numpy as np

FILE = "drafter.presence"
_STATE, _LOSSES, _JOINS, _GIVEN_UP = range(4)
_FIELDS = 4


class State(IntEnum):
    """Where the drafter is.

    ABSENT -> WAITING -> JOINING -> PRESENT, and from each of them back to ABSENT when its process ends.
    """

    ABSENT = 0
    """There is none: rows go on without drafts, and another one starts (executor)."""
    WAITING = 1
    """One has started. It takes part as soon as no row is under way (executor)."""
    JOINING = 2
    """Nothing is under way, and all rows read their prompts again, for it has seen none (scheduler)."""
    PRESENT = 3
    """It takes part in every call (executor)."""


class Presence:
    """The numbers.

    Args:
        folder: the engine's; None: a drafter that is always there, known to this object alone.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, folder: Path | None) -> None:
        if folder is None:
            self._numbers = np.zeros(_FIELDS, np.int64)
            self.state = State.PRESENT
            return
        size = _FIELDS * np.dtype(np.int64).itemsize
        with os.fdopen(os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o600), "rb+") as file:
            os.ftruncate(file.fileno(), size)  # whoever comes first makes it; the same size again changes nothing
            self._numbers = np.frombuffer(mmap.mmap(file.fileno(), size), np.int64)

    @classmethod
    def seen_in(cls, folder: Path) -> "Presence | None":
        """The numbers of another process's engine, to be read only; None while it has made none."""
        try:
            file = (folder / FILE).open("rb")
        except FileNotFoundError:
            return None
        with file:
            if os.fstat(file.fileno()).st_size == 0:
                return None  # it has just been made
            seen = cls.__new__(cls)
            seen._numbers = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.int64)
        return seen

    @property
    def state(self) -> State:
        """Where the drafter is."""
        return State(int(self._numbers[_STATE]))

    @state.setter
    def state(self, state: State) -> None:
        self._numbers[_STATE] = state

    @property
    def drafting(self) -> bool:
        """Whether rows that are scheduled now will have drafts."""
        return int(self._numbers[_STATE]) >= State.JOINING

    @property
    def losses(self) -> int:
        """How often it was lost."""
        return int(self._numbers[_LOSSES])

    @property
    def joins(self) -> int:
        """How often another one has joined."""
        return int(self._numbers[_JOINS])

    @property
    def given_up(self) -> bool:
        """Whether a verifier, or the engine process, has waited for it for too long, or was cut off."""
        return bool(self._numbers[_GIVEN_UP])

    def lose(self) -> None:
        """Its process has ended."""
        if self.state == State.PRESENT:
            self._numbers[_LOSSES] += 1
        self.state = State.ABSENT

    def join(self) -> None:
        """Another one takes part from now on."""
        self._numbers[_GIVEN_UP] = 0
        self._numbers[_JOINS] += 1
        self.state = State.PRESENT

    def give_up(self) -> None:
        """All others go on without it: it had better end."""
        self._numbers[_GIVEN_UP] = 1
