"""A function in two processes at once, the verifier's and the drafter's, with what they return or how they failed."""

import multiprocessing
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class Failed(Exception):  # noqa: N818 - a state, named as what it says
    """A process raised, died, or did not end in time; the message says which and how."""


def together(target: Callable[..., Any], *arguments: Any, limit_s: float, ranks: int = 2) -> list[Any]:
    """Call `target(rank, *arguments)` in a process for each rank.

    Args:
        target: a function of a module.
        arguments: the same for all ranks.
        limit_s: they are killed after so long (seconds).
        ranks: how many.

    Returns:
        What each returned.

    Raises:
        Failed: one did not return.
    """
    context = multiprocessing.get_context("spawn")  # CUDA does not outlive a fork
    pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
    processes = [
        context.Process(target=_serve, args=(pipe[1], target, rank, arguments)) for rank, pipe in enumerate(pipes)
    ]
    deadline = time.monotonic() + limit_s
    try:
        for process, (_, theirs) in zip(processes, pipes, strict=True):
            process.start()
            theirs.close()
        return [_result(rank, ours, deadline, limit_s) for rank, (ours, _) in enumerate(pipes)]
    finally:
        for process in processes:
            if process.pid is not None:
                process.join(max(0.0, min(5.0, deadline - time.monotonic())))
                process.kill()
                process.join()


def _result(rank: int, pipe: Connection, deadline: float, limit_s: float) -> Any:
    if not pipe.poll(max(0.0, deadline - time.monotonic())):
        raise Failed(f"rank {rank} did not end within {limit_s:g} s")
    try:
        error, value = pipe.recv()
    except EOFError:
        raise Failed(f"rank {rank} died") from None
    if error:
        raise Failed(f"rank {rank}: {error}")
    return value


def _serve(pipe: Connection, target: Callable[..., Any], rank: int, arguments: tuple[Any, ...]) -> None:
    try:
        answer = "", target(rank, *arguments)
    except Exception as error:
        traceback.print_exc()
        answer = f"{type(error).__name__}: {error}", None
    pipe.send(answer)
