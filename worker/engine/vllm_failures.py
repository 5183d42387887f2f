"""Why vLLM did not start, in one line: it says so in pages, and in several processes."""

import re

from pydantic import ValidationError

from worker.engine.protocol import EngineDead, EngineStartError
from worker.engine.rows import one_line

_RANK_KILLED = re.compile(r"RankDied: (.* was killed by signal \d+)")
_KILLED = re.compile(r"Failed core proc\(s\): \{'(\w+)': -(\d+)")
#: What vLLM says when it sees a process end a moment before the system has its exit code.
_ENDED = "Failed core proc(s): {}"


def start_failure(error: Exception, first_error: str | None) -> EngineStartError | EngineDead:
    """What to raise for an exception that vLLM raised while starting.

    Args:
        error: the exception, as the front end saw it.
        first_error: the first error that the engine's processes left, if they left any.
    """
    killed = _KILLED.search(str(error))
    if killed:
        name, signal = killed.groups()
        return EngineDead(f"vLLM's process {name} was killed by signal {signal} while starting")
    died = _RANK_KILLED.search(first_error or "")
    if died:
        return EngineDead(f"{died[1]} while starting")
    if _ENDED in str(error) and first_error is None:  # a process that ends by itself leaves its reason
        return EngineDead("vLLM's process EngineCore was killed while starting")
    if isinstance(error, ValidationError):
        reason = "; ".join(mistake["msg"].removeprefix("Value error, ") for mistake in error.errors())
    else:
        reason = first_error or f"{type(error).__name__}: {error}"
    return EngineStartError(one_line(f"vLLM cannot start: {reason}"))
