"""What processes of a test do: a module of its own, which they can import."""

import os
import time


def twice(rank: int, number: int) -> int:
    return 2 * number + rank


def fails(rank: int) -> None:
    if rank == 1:
        raise ValueError("no")


def dies(rank: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), 9)


def hangs(rank: int) -> None:
    if rank == 0:
        time.sleep(600)
