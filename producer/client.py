"""The producer for programs: `async with Client() as client: job = await client.submit("rows.jsonl")`."""

import logging
import math
from collections.abc import AsyncIterable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Self, get_args

from producer.errors import Refused
from producer.intake import refused
from producer.intake.defaults import check_defaults, check_size
from producer.intake.feed import Feed, pump, read_apart
from producer.intake.given import Submittable, source_of
from producer.intake.in_memory import ROWS
from producer.intake.reading import OnDuplicate
from producer.intake.sources import Source, SourceError
from producer.intake.submission import AppendRefused, DuplicateIds, NothingReadable, Submitted, submit_lines
from producer.job import Job, Link
from producer.locate import url_of
from producer.record import fleet, jobs
from producer.record.connection import connect, plain_errors, reach
from producer.record.finding import find_job
from producer.record.jobs import JobOptions, JobStatus
from producer.record.models import TARGET
from producer.record.submission import SubmissionLost
from producer.text import printable

_log = logging.getLogger("producer")

#: What a submission finds wrong with its rows, or with what they are to become.
_FINDINGS = (AppendRefused, DuplicateIds, NothingReadable, SubmissionLost)


class Client:
    """A connection to the queue; `async with` opens and closes it. Jobs go on without it.

    What goes wrong is a `ProducerError` with a message of one line: `RedisUnavailable`, or `Refused` for what cannot be
    done.
    """

    def __init__(self, url: str | None = None, *, say: Callable[[str], Any] = _log.warning) -> None:
        """Name the Redis; nothing is connected yet.

        Args:
            url: its URL, as `producer --redis` takes it. None: that in `MINEDRAFT_REDIS_URL`, else this user's embedded
                server.
            say: hears, for instance, when Redis goes away and is waited for.
        """
        self._named = url
        self._say = say
        self._stack = AsyncExitStack()
        self._opened: Link | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            RedisUnavailable: Redis does not answer, or no URL is named and the embedded server does not run.
        """
        url = url_of(self._named)
        async with AsyncExitStack() as stack, plain_errors(url):
            redis = await stack.enter_async_context(connect(url))
            await reach(redis)
            self._stack = stack.pop_all()
        self._opened = Link(redis, url, self._say)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        self._opened = None
        await self._stack.aclose()

    @property
    def link(self) -> Link:
        """The way to Redis that is open.

        Raises:
            RuntimeError: none is.
        """
        if self._opened is None:
            raise RuntimeError("the client is not open: use it in `async with Client() as client:`")
        return self._opened

    async def submit(
        self,
        rows_or_files: Submittable,
        *,
        model: str | None = None,
        name: str | None = None,
        new: bool = False,
        priority: int = 0,
        max_error_rate: float | None = None,
        ttl: float | timedelta | None = None,
        defaults: Mapping[str, Any] | None = None,
        on_duplicate: OnDuplicate = "refuse",
        dedupe: bool = False,
        append: str | None = None,
    ) -> Job:
        """Submit rows as one job; memory does not grow with them. The same rows again are the job that is there.

        A row that cannot be used becomes an error among the results. Rows in memory are what the lines of a file would
        be, from number 1 on. Those of an asynchronous iterable are parsed in a thread of their own; a file, and any
        other iterable, is read here, in between what else this event loop does.

        Args:
            rows_or_files: a path or pattern, several, or rows.
            model: the served model to ask; None: the only one served.
            name: for people; None: the file's.
            new: start another job even if the same rows were submitted.
            priority: -100 to 100; jobs of a higher one go first.
            max_error_rate: pause the job when a larger share of its rows fails, 0 to 1.
            ttl: purge the job so long after its end; seconds, or a duration.
            defaults: parameters of every row that does not say otherwise.
            on_duplicate: what becomes of a `custom_id` that is there already: the submission is refused, or the later
                row is an error.
            dedupe: compute equal rows once.
            append: a job, by id or name, that was made of the first of these rows: add the others to it.

        Raises:
            Refused: the rows, or what is asked for them, cannot be submitted; nothing of it stays.
            RedisUnavailable: Redis cannot be reached; nothing can run before the same is submitted again.
            OSError: a file cannot be read.
        """
        if on_duplicate not in get_args(OnDuplicate):
            raise Refused(f"on_duplicate: {on_duplicate!r} is neither {' nor '.join(map(repr, get_args(OnDuplicate)))}")
        options = job_options(priority, max_error_rate, ttl)
        asked = dict(defaults or {})
        _check_asked(asked)
        link = self.link
        async with link.plainly():
            grown = None if append is None else await find_job(link.redis, append)
            chosen = await self.served_model(model) if grown is None else grown.model

        async def send(to: Link, source: Source) -> Submitted:
            try:
                async with to.plainly():
                    return await submit_lines(
                        to.redis,
                        source,
                        model=chosen,
                        name=printable(name or source.name),
                        new=new,
                        options=options,
                        defaults=asked,
                        on_duplicate=on_duplicate,
                        dedupe=dedupe,
                        append=None if grown is None else grown.job_id,
                        say=to.say,
                    )
            except SourceError as error:  # it names the file
                raise Refused(str(error)) from None
            except _FINDINGS as error:
                raise Refused(f"{source.name}: {error}") from None

        async def send_apart(feed: Feed) -> Submitted:
            async with Client(link.url, say=link.say) as other:
                return await send(other.link, feed)

        if isinstance(rows_or_files, Feed):
            done = await read_apart(rows_or_files, send_apart)
        elif isinstance(rows_or_files, AsyncIterable):
            done = await pump(rows_or_files, Feed(ROWS), send_apart)
        else:
            done = await send(link, source_of(rows_or_files))
        return Job(link, done.job_id, done)

    async def served_model(self, asked: str | None = None) -> str:
        """The model that a job is for: the one that is asked for, or the only one that workers serve.

        Raises:
            Refused: several are served and none is asked for.
        """
        if asked == "":
            raise Refused("model: a name is needed")
        if asked is not None:
            return asked
        async with self.link.plainly():
            served = sorted({card.model for card in await fleet.living(self.link.redis)})
        if len(served) > 1:
            raise Refused(f"several models are served, choose one with --model: {', '.join(served)}")
        return served[0] if served else TARGET

    async def job(self, id_or_name: str) -> Job:
        """A job that is there; a name will do where it means one.

        Raises:
            NoSuchJob: it is not.
            Refused: several have this name.
        """
        async with self.link.plainly():
            return Job(self.link, (await find_job(self.link.redis, id_or_name)).job_id)

    async def jobs(self) -> list[JobStatus]:
        """Where all jobs stand, the oldest first."""
        async with self.link.plainly():
            return await jobs.statuses(self.link.redis)


def job_options(priority: int, max_error_rate: float | None, ttl: float | timedelta | None) -> JobOptions:
    """How a job is to be treated.

    Raises:
        Refused: a value is out of its range.
    """
    if not -100 <= priority <= 100:
        raise Refused(f"priority: {priority} is not in -100 to 100")
    if max_error_rate is not None and not 0 <= max_error_rate <= 1:
        raise Refused(f"max_error_rate: {max_error_rate} is not in 0 to 1")
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if seconds is not None and not math.isfinite(seconds):
        raise Refused(f"ttl: {seconds} is no number of seconds; None keeps the job until it is purged")
    if seconds is not None and seconds < 1:
        raise Refused(f"ttl: {seconds:g} s would remove the job before anybody has its results")
    return JobOptions(priority, max_error_rate, None if seconds is None else int(seconds))


def _check_asked(defaults: dict[str, Any]) -> None:
    try:
        check_defaults(defaults)
        check_size(defaults)
    except refused.Refused as error:
        raise Refused(f"defaults: {error}") from None
    except (TypeError, ValueError) as error:
        raise Refused(f"defaults: they cannot be written as JSON: {error}") from None
