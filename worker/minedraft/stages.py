"""The stage clock: when each rank did what in each call of `execute_model`, kept in memory that another process reads.

Each rank writes one record a call into a ring of its own, a memory-mapped file; the front end reads all rings now and
then. No lock and no message: a writer never waits and never knows whether anybody reads, and what it has published
outlives its death. Times are CLOCK_MONOTONIC in ns, one clock for all processes of a host. A rank publishes a record in
two steps, record then count, and the reader tells by the count what it may have seen half written.
"""

import mmap
import os
import time
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Stage(IntEnum):
    """What a rank does in a call, and the stage's place in a record's `begin` and `end`."""

    RECV = 0
    """Wait for the other side's message: a verifier for drafts, the drafter for sampled tokens."""
    PREPARE = 1
    """Bring the batch's state and inputs up to date."""
    FORWARD = 2
    """The target model's forward pass; verifier only."""
    SAMPLE = 3
    """Accept or reject the drafts and sample; verifier only."""
    DRAFT = 4
    """Propose the next drafts; drafter only."""
    SEND = 5
    """Hand the result to the link."""
    SCHEDULE = 6
    """Decide what is in the call; engine process only."""
    UPDATE = 7
    """Take in the result of the call before, or of this one; engine process only."""


#: The most drafts of a request whose acceptance is counted position by position.
MAX_DRAFTS = 16
_POSITIONS = np.arange(1, MAX_DRAFTS + 1)

#: One call. Stage times in ns, 0 where the stage did not happen; `tokens` are the scheduled tokens, `drafted` the
#: drafts among them, `prefill` the requests that still read their prompt; `drafted_at[j]` and `accepted[j]` are the
#: requests with a draft scheduled, and accepted, at position j (from 0); `asked` are the tokens that are drafted for
#: each request in this call, `way` is how rows take turns (`strategies.seam.Way`). What is scheduled is what is
#: verified: drafts that did not come, or were not admitted, are not counted.
RECORD = np.dtype(
    [
        ("call", np.int64),
        ("begin", np.int64, (len(Stage),)),
        ("end", np.int64, (len(Stage),)),
        ("requests", np.int32),
        ("tokens", np.int32),
        ("drafted", np.int32),
        ("prefill", np.int32),
        ("accepted", np.int32, (MAX_DRAFTS,)),
        ("drafted_at", np.int32, (MAX_DRAFTS,)),
        ("asked", np.int32),
        ("way", np.int32),
    ]
)
#: An array of `RECORD`, oldest first.
Records = NDArray[np.void]

#: The start of a ring file. `capacity` is written last when the file is made, and `count` (records ever published) last
#: for each record: both are aligned 8-byte stores, which no reader sees in part.
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", np.int32),
        ("record_bytes", np.int32),
        ("capacity", np.int64),
        ("count", np.int64),
    ]
)
_MAGIC, _VERSION = b"MDSTAGES", 3

#: What the drafter is called.
DRAFTER = "drafter"
#: What the engine process is called.
ENGINE = "engine"
#: How the names of ring files end.
SUFFIX = ".stages"


def verifier_name(rank: int) -> str:
    """What the verifier of a tensor-parallel rank is called."""
    return f"verifier_{rank}"


def ring_path(folder: Path, rank: str) -> Path:
    """Where a rank (`DRAFTER`, `ENGINE` or a `verifier_name`) has its ring in an engine's folder."""
    return folder / f"{rank}{SUFFIX}"


class StageClock:
    """Writes one rank's records, for one thread: `begin`, `start` and `stop` for each stage, counts, `commit`.

    A call that is begun and never committed leaves nothing. A stage happens at most once a call.

    Args:
        path: the ring's file, made anew; on a memory file system (/dev/shm), no write ever waits for a disk. None:
            keep nothing.
        capacity: records that the ring holds, 288 bytes each, of which a reader can get all but the oldest.

    Raises:
        OSError: the file cannot be made, or its room is not there. (Nothing fails after this.)
    """

    def __init__(self, path: Path | None, capacity: int = 4096) -> None:
        record = np.zeros(1, RECORD)
        self._bytes = record.view(np.uint8)
        self._call = record["call"]
        self._begin, self._end = record["begin"][0], record["end"][0]
        self._requests, self._tokens, self._prefill = record["requests"], record["tokens"], record["prefill"]
        self._asked, self._way = record["asked"], record["way"]
        self._drafted, self._drafted_at, self._accepted = record["drafted"], record["drafted_at"], record["accepted"]
        self._capacity, self._published = capacity, 0
        self._ring = None if path is None else _make_ring(path, capacity)

    def begin(self, call: int) -> None:
        """Open the record of a call, in place of one that was not committed.

        Args:
            call: the call's number, by which the records of all ranks match; empty calls have numbers, too.
        """
        self._bytes.fill(0)
        self._call[0] = call

    def call(self, call: int) -> None:
        """Say which call it is, where that was not known when the record was opened."""
        self._call[0] = call

    def start(self, stage: Stage) -> None:
        """The stage begins now."""
        self._begin[stage] = time.monotonic_ns()

    def stop(self, stage: Stage) -> None:
        """The stage ends now."""
        self._end[stage] = time.monotonic_ns()

    def took(self, stage: Stage, begin: int, end: int) -> None:
        """The stage was then: for whoever learns it later (ns of CLOCK_MONOTONIC)."""
        self._begin[stage], self._end[stage] = begin, end

    def count(self, *, requests: int, tokens: int, prefill: int, asked: int = 0, way: int = 0) -> None:
        """Say what is in the batch.

        Args:
            requests: how many.
            tokens: that are scheduled.
            prefill: requests that still read their prompt.
            asked: tokens that are drafted for each request in this call.
            way: how rows take turns.
        """
        self._requests[0] = requests
        self._tokens[0] = tokens
        self._prefill[0] = prefill
        self._asked[0], self._way[0] = asked, way

    def drafts_nothing(self) -> None:
        """Nothing is drafted in this call after all."""
        self._asked[0] = 0

    def drafts(self, scheduled: ArrayLike, accepted: ArrayLike) -> None:
        """Count the drafts of the batch.

        Args:
            scheduled: [requests] how many drafts of each were verified.
            accepted: [requests] how many of them, from the first on, were accepted.
        """
        self._drafted[0] = np.sum(scheduled)
        self._drafted_at[0] = _reached(scheduled)
        self._accepted[0] = _reached(accepted)

    def commit(self) -> None:
        """Publish the record."""
        if self._ring is not None:
            count, slots = self._ring
            slots[self._published % self._capacity] = self._bytes
            self._published += 1
            count[0] = self._published

    def flush(self) -> None:
        """Nothing: what is committed is published. (`event_clock.EventClock` publishes later.)"""


class StageReader:
    """Reads one rank's records from its ring, which may not be there yet.

    Attributes:
        lost: records that were overwritten before they were read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ring: tuple[NDArray[np.int64], Records] | None = None
        self._inode = self._next = 0
        self.lost = 0

    def read(self) -> Records:
        """All records since the last read, in order; none while the ring is not there or half made.

        A rank that is started again makes a new ring: its records follow those of the one before.

        Raises:
            ValueError: the file is not a ring of this version.
        """
        if self._ring is None:
            self._open()
        records = self._take()
        if self._ring is not None and self._replaced():
            self._open()
            records = np.concatenate([records, self._take()])
        return records

    def _open(self) -> None:
        self._inode, self._ring = _open_ring(self._path)
        self._next = 0

    def _replaced(self) -> bool:
        try:
            return self._path.stat().st_ino != self._inode
        except FileNotFoundError:
            return False

    def _take(self) -> Records:
        if self._ring is None:
            return np.empty(0, RECORD)
        count, slots = self._ring
        end = int(count[0])
        first = max(self._next, end - len(slots))
        records = self._copy(slots, first, end)
        # The writer may be at record number `count`, in the slot of the one that lies a ring's length before it.
        intact = min(end, max(first, int(count[0]) - len(slots) + 1))
        self.lost += intact - self._next
        self._next = end
        return records[intact - first :]

    def _copy(self, slots: Records, first: int, end: int) -> Records:
        records: Records = slots[np.arange(first, end) % len(slots)]
        return records


def _reached(lengths: ArrayLike) -> NDArray[np.int64]:
    """How many of the lengths are at least 1, 2 and so on to `MAX_DRAFTS`."""
    ordered = np.sort(np.asarray(lengths, np.int64))
    return ordered.size - ordered.searchsorted(_POSITIONS)


def _make_ring(path: Path, capacity: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The count, int64 [1], and the slots, uint8 [capacity, bytes of a record], of a new file."""
    path.unlink(missing_ok=True)  # not truncated: whoever still has the old one mapped would crash
    with path.open("xb+") as file:
        size = HEADER.itemsize + capacity * RECORD.itemsize
        os.posix_fallocate(file.fileno(), 0, size)  # a page that finds no room when it is written kills the process
        memory = mmap.mmap(file.fileno(), size)
    header = np.frombuffer(memory, HEADER, count=1)
    header["magic"], header["version"], header["record_bytes"] = _MAGIC, _VERSION, RECORD.itemsize
    header["capacity"] = capacity
    slots = np.frombuffer(memory, np.uint8, offset=HEADER.itemsize).reshape(capacity, RECORD.itemsize)
    return header["count"], slots


def _open_ring(path: Path) -> tuple[int, tuple[NDArray[np.int64], Records] | None]:
    """The file's inode; the count, int64 [1], and the slots, records [capacity]: None when it is not made yet."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0, None
    with file:
        status = os.fstat(file.fileno())
        if status.st_size < HEADER.itemsize:
            return 0, None
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header = np.frombuffer(memory, HEADER, count=1)
    capacity = int(header["capacity"][0])
    if capacity == 0:
        return 0, None
    if header[["magic", "version", "record_bytes"]].tolist() != [(_MAGIC, _VERSION, RECORD.itemsize)]:
        raise ValueError(f"{path} is not a ring of stage records, version {_VERSION}")
    return status.st_ino, (header["count"], np.frombuffer(memory, RECORD, count=capacity, offset=HEADER.itemsize))
