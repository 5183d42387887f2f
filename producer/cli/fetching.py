"""What `producer results` does, in its three ways: of an ended job, of one that is followed, out of Redis."""

import io
import os
import sys
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from producer.cli.common import ExitCode, Refused, escaped, fail, find_job, redis_at, say
from producer.cli.consume import consume_into, counted
from producer.cli.waiting import Doubts
from producer.errors import NoSuchJob
from producer.following import looks
from producer.record.fetch import Moved, Order, Page, Place
from producer.record.jobs import JobStatus
from producer.results.facts import add_manifest
from producer.results.fetch import RowsMissing, check_count
from producer.results.fetch import fetch as fetch_files
from producer.results.formats import Format
from producer.results.outputs import Outputs, Stream
from producer.results.part import Part
from producer.results.replacing import check_replaced
from producer.results.shapes import Tally
from producer.results.sinks import Sinks, Wanted


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's arguments as they were typed."""

    job: str
    output: str
    errors: str | None
    shape: Format | None
    order: Order
    partial: bool
    follow: bool
    consume: bool
    manifest: bool
    overwrite: bool

    @contextmanager
    def opened(self) -> Iterator[Wanted]:
        """What is wanted, with standard output, devices and pipes open.

        Raises:
            Refused: it makes no sense.
        """
        with ExitStack() as stack:

            def place(name: str) -> Path | Stream:
                path = Path(name)
                if name != "-" and not (path.exists() and not path.is_file() and not path.is_dir()):
                    return path
                stream = sys.stdout.buffer if name == "-" else stack.enter_context(path.open("wb"))
                return _Terminal(stream) if stream.isatty() else stream

            wanted = Wanted(
                results=place(self.output),
                errors=None if self.errors is None else place(self.errors),
                format=self.shape,
                manifest=self.manifest,
            )
            wanted.check()
            yield wanted
            sys.stdout.flush()


class _Terminal(io.RawIOBase):
    """A terminal: lines with what it might obey in them as \\u escapes."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def write(self, data: Any, /) -> int:
        text = bytes(data).decode(errors="surrogateescape")
        self._stream.write("\n".join(map(escaped, text.split("\n"))).encode())
        return len(data)

    def flush(self) -> None:
        self._stream.flush()


async def write_results(asked: Asked, url: str | None) -> int:
    """Do it; returns the exit code.

    Raises:
        Refused: it makes no sense, or cannot be done.
    """
    _check(asked)
    async with redis_at(url) as redis:
        job = await find_job(redis, asked.job)
        if asked.consume:
            return await consume_into(redis, job.job_id, Path(asked.output), manifest=asked.manifest)
        try:
            return await (_follow if asked.follow else _fetch)(redis, job, asked)
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.FINE
        except RowsMissing as missing:
            return fail(str(missing), ExitCode.SOME_ROWS_FAILED)


def _check(asked: Asked) -> None:
    ways = [f"--{name}" for name in ("partial", "follow", "consume") if getattr(asked, name)]
    if len(ways) > 1:
        raise Refused(f"{' and '.join(ways)} exclude each other: use one of them")
    if asked.errors == "-":
        raise Refused("--errors needs a FILE: standard output has one kind of row")
    if asked.consume and asked.output == "-":
        raise Refused("--consume needs -o FILE: results leave Redis only for a disk")
    if (asked.follow or asked.consume) and asked.order == "input":
        raise Refused(f"{ways[0]} writes rows as they end; --order input is for a job that has ended, or for --partial")
    errors = None if asked.errors is None else Path(asked.errors)
    if asked.consume and not Wanted(Path(asked.output), errors, asked.shape).is_as_stored:
        raise Refused(
            "--consume appends lines in OpenAI's shape to one FILE.jsonl; --errors, other formats and compression are "
            "for results that stay in Redis"
        )


async def _fetch(redis: Redis, job: JobStatus, asked: Asked) -> int:
    if job.consumed and job.consumed == job.done and not asked.partial:
        raise Refused(f"all {job.done} rows of job {job.job_id} were consumed: they are in the file of `--consume`")
    with asked.opened() as wanted:
        check_replaced(job, wanted, overwrite=asked.overwrite)
        done = await fetch_files(redis, job.job_id, wanted, order=asked.order, partial=asked.partial)
    _say_written(asked, done.job, done.tally)
    return ExitCode.FINE


async def _follow(redis: Redis, job: JobStatus, asked: Asked) -> int:
    if job.consumed:
        raise Refused(f"{job.consumed} rows of job {job.job_id} were consumed: `--consume` goes on with their file")
    with asked.opened() as wanted:
        check_replaced(job, wanted, overwrite=asked.overwrite)
        with Outputs.opened() as nothing:  # what cannot be written is said before hours have passed
            _ = Sinks(nothing, wanted)  # held until the files are gone: what a writer's end would write is dropped then
        if isinstance(wanted.results, Path):
            job, tally = await _follow_to_file(redis, job.job_id, wanted, wanted.results)
        else:
            job, tally = await _follow_to_stream(redis, job.job_id, wanted)
    if job.state.ended:
        _say_written(asked, job, tally)
    return ExitCode.SOME_ROWS_FAILED if tally.failed or tally.lines < job.rows else ExitCode.FINE


async def _follow_to_file(redis: Redis, job_id: str, wanted: Wanted, path: Path) -> tuple[JobStatus, Tally]:
    doubts = Doubts()
    with Part.opened(path) as part, Outputs.opened() as outputs:
        if part.tally.lines:
            say(f"{part.tally.lines} rows of job {job_id} are in {part.path} already")
        try:
            job = await _until_the_end(doubts, redis, job_id, part.place, part.add)
        except Moved:
            raise part.foreign() from None
        except CancelledError:
            say(f"{part.tally.lines} rows are in {part.path}; the same command goes on from here")
            raise
        except OSError as error:
            raise Refused(
                f"{part.path}: {error.strerror}; no row is lost, the same command goes on from here"
            ) from None
        if not job.state.ended:
            return job, part.tally
        check_count(job, part.tally)
        if wanted.is_as_stored:
            files = [part.written(path)]
        else:
            sinks = Sinks(outputs, wanted)
            for lines in part.lines():
                sinks.write(lines)
            files = sinks.close()
        if (manifest := wanted.manifest_path) is not None:
            await doubts.patiently(add_manifest, redis, outputs, manifest, job, part.tally, files)
        if wanted.is_as_stored:
            part.become(path)
        outputs.commit()
        if not wanted.is_as_stored:
            part.remove()
    return job, part.tally


async def _follow_to_stream(redis: Redis, job_id: str, wanted: Wanted) -> tuple[JobStatus, Tally]:
    with Outputs.opened() as outputs:
        sinks = Sinks(outputs, wanted)

        def put(found: Page) -> None:
            sinks.write(found.lines)
            sinks.flush()

        try:
            job = await _until_the_end(Doubts(), redis, job_id, Place(), put)
        except Moved as moved:
            raise Refused(f"{moved}; what was written so far is out of date: begin anew") from None
        if job.state.ended:
            check_count(job, sinks.tally)
        sinks.close()
        outputs.commit()
    return job, sinks.tally


async def _until_the_end(
    doubts: Doubts, redis: Redis, job_id: str, place: Place, put: Callable[[Page], None]
) -> JobStatus:
    """Put every page from a place on; the job when it has ended, or has paused itself.

    Raises:
        Moved: the record is not the one that was read so far.
        Refused: the job is gone.
    """
    try:
        async with aclosing(looks(doubts, redis, job_id, place)) as found:
            async for job, page in found:
                if page.count:
                    put(page)
                else:
                    await doubts.patiently(doubts.voice, redis, job)
    except NoSuchJob:
        raise Refused(f"job {job_id} is not in Redis any more: what was written is not all of it") from None
    return job


def _say_written(asked: Asked, job: JobStatus, tally: Tally) -> None:
    where = "standard output" if asked.output == "-" else asked.output
    errors = "" if asked.errors is None else f", failed ones to {asked.errors}"
    consumed = f"; {job.consumed} were consumed earlier" if job.consumed else ""
    more = "" if job.state.ended else f" (the job is {job.state.value}, more will come)"
    say(f"{counted(tally.lines, job.rows, tally.failed)}, written to {where}{errors}{consumed}{more}")
