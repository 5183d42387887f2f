"""Rows that failed, found in Redis: of a job's results only the error lines are read."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from producer.record import scripts
from producer.record.jobs import JobStatus

#: Results that one call looks at, and about how many bytes of them. Redis does nothing else meanwhile.
_ROWS = 2000
_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that failed.

    Attributes:
        line: of the submitted file, from 1; None where what is stored of the row was unreadable.
        file: which one, in a job of several; else "".
        custom_id: the row's name; None where its line was unreadable.
        code: why, in one word.
        message: why, in a sentence.
    """

    line: int | None
    file: str
    custom_id: str | None
    code: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """The same for programs, `file` left out where it says nothing."""
        named = {"file": self.file} if self.file else {}
        said = {"custom_id": self.custom_id, "code": self.code, "message": self.message}
        return {"line": self.line, **named, **said}


async def failures(redis: Redis, job: JobStatus) -> AsyncIterator[Failure]:
    """The failed rows that are in Redis, in the order in which they ended; those that were consumed are not there.

    Ends early when all that failed were found.
    """
    place, left = job.consumed, job.failed
    while left > 0:
        end, *lines = await scripts.run(redis, "errors", job.job_id, place, _ROWS, _BYTES)
        for line in lines:
            failure = _read(line)
            if failure is not None:
                left -= 1
                yield failure
        if end == place:
            return
        place = end


def _read(line: str) -> Failure | None:
    """What an error line says; None for one that somebody has damaged."""
    try:
        said = json.loads(line)
        error = said["error"]
        return Failure(
            error.get("line"),
            str(error.get("file", "")),
            said.get("custom_id"),
            str(error["code"]),
            str(error["message"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
