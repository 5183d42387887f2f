"""The light side of minedraft-worker: submits datasets, watches them, fetches results; owns the wire format.

`Client` and `SyncClient` are its face for programs (README.md, beside this file).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producer.client import Client
    from producer.errors import JobPaused, NoSuchJob, ProducerError, RedisUnavailable, Refused
    from producer.job import Job
    from producer.record.jobs import JobStatus
    from producer.record.models import JobState
    from producer.result import Result, RowError
    from producer.sync import SyncClient, SyncJob

__all__ = [
    "Client",
    "Job",
    "JobPaused",
    "JobState",
    "JobStatus",
    "NoSuchJob",
    "ProducerError",
    "RedisUnavailable",
    "Refused",
    "Result",
    "RowError",
    "SyncClient",
    "SyncJob",
]

#: Where each name is. They are loaded when they are asked for: `producer --help` needs none of them.
_HOMES = {
    "producer.client": ("Client",),
    "producer.errors": ("JobPaused", "NoSuchJob", "ProducerError", "RedisUnavailable", "Refused"),
    "producer.job": ("Job",),
    "producer.record.jobs": ("JobStatus",),
    "producer.record.models": ("JobState",),
    "producer.result": ("Result", "RowError"),
    "producer.sync": ("SyncClient", "SyncJob"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
