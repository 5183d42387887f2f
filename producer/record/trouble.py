"""What can be wrong with Redis: redis-py's many errors as a few kinds that call for different words."""

from enum import StrEnum
from typing import Any

from redis import exceptions


class Trouble(StrEnum):
    """Why Redis did not do what it was asked; all but the last pass without anybody changing the question."""

    UNREACHABLE = "unreachable"
    """Nobody listens, the connection broke, or the server has just started: loads its data, knows no script."""
    TIMEOUT = "timeout"
    """It does not answer in time."""
    FULL = "full"
    """Its memory limit is reached (`noeviction`: writes are refused)."""
    READ_ONLY = "read_only"
    """It is a replica, or misses the replicas that it must have."""
    DISK = "disk"
    """It cannot write its files, and so takes no writes."""
    REFUSED = "refused"
    """Password or access rights."""
    OTHER = "other"
    """It answers with an error about this very request."""


#: Known by their words alone: redis-py has no class for some, and inside scripts Redis 6.2 hides the code of all.
_WORDS = {
    "OOM command not allowed": Trouble.FULL,
    "command not allowed when used memory": Trouble.FULL,
    "MISCONF": Trouble.DISK,
    "READONLY": Trouble.READ_ONLY,
    "against a read only replica": Trouble.READ_ONLY,
    "MASTERDOWN": Trouble.READ_ONLY,
    "NOREPLICAS": Trouble.READ_ONLY,
    "NOPERM": Trouble.REFUSED,
    "NOAUTH": Trouble.REFUSED,
    "ACL failure in script": Trouble.REFUSED,
    "The user executing the script": Trouble.REFUSED,
    "BUSY ": Trouble.TIMEOUT,
}


def trouble(error: Exception) -> Trouble:
    """The kind of an error that a call of Redis ended with."""
    match error:
        case exceptions.AuthenticationError() | exceptions.AuthorizationError() | exceptions.NoPermissionError():
            return Trouble.REFUSED
        case exceptions.TimeoutError() | TimeoutError():
            return Trouble.TIMEOUT
        case exceptions.ConnectionError() | OSError() | exceptions.NoScriptError():
            return Trouble.UNREACHABLE
        case exceptions.OutOfMemoryError():
            return Trouble.FULL
        case exceptions.ReadOnlyError():
            return Trouble.READ_ONLY
    text = str(error)
    return next((kind for words, kind in _WORDS.items() if words in text), Trouble.OTHER)


def sound(answer: Any) -> Any:
    """One of a pipeline's answers, None where it is an error about that key alone.

    Raises:
        redis.exceptions.RedisError: it is an error about more.
    """
    if not isinstance(answer, Exception):
        return answer
    if trouble(answer) is Trouble.OTHER:
        return None
    raise answer
