"""Jobs as people name them: by id, or by name where that means one job."""

from collections.abc import Sequence

from redis.asyncio import Redis

from producer.errors import NoSuchJob, Refused
from producer.record.jobs import JobStatus, status, statuses
from producer.record.models import JobState

#: Jobs of one name that an error lists, the newest.
_LISTED = 5


async def find_job(redis: Redis, wanted: str) -> JobStatus:
    """The job with this id, or else the one with this name: the only one, or the only one that has not ended.

    A submission that was cut short has a name, too: it is meant where no job has it.

    Raises:
        NoSuchJob: there is none.
        Refused: the name means several.
    """
    found = await status(redis, wanted)
    return found if found is not None else by_name(await statuses(redis), wanted)


def by_name(jobs: Sequence[JobStatus], name: str) -> JobStatus:
    """The job that `name` means among `jobs`, oldest first.

    Raises:
        NoSuchJob: none has it.
        Refused: it means several.
    """
    named = [job for job in jobs if job.name == name]
    named = [job for job in named if job.state is not JobState.SUBMITTING] or named
    open_ = [job for job in named if not job.state.ended]
    if len(named) == 1 or len(open_) == 1:
        return (open_ or named)[0]
    if not named:
        raise NoSuchJob(f"there is no job {name!r}; `producer list` shows those that there are")
    listed = ", ".join(f"{job.job_id} ({job.state})" for job in named[-_LISTED:])
    more = f", and {len(named) - _LISTED} older ones" if len(named) > _LISTED else ""
    raise Refused(f"{len(named)} jobs are called {name!r}: {listed}{more}; name one by its id")
