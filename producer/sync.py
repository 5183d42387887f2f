"""The same client without `await`, for scripts and notebooks: an event loop runs in a thread of its own."""

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterator, Sequence
from threading import Event, Thread
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from producer.client import Client
from producer.intake.feed import Feed
from producer.intake.given import Submittable, source_of
from producer.intake.in_memory import RowsAtHand
from producer.intake.submission import Submitted
from producer.job import Job
from producer.result import Result

#: How long one who presses Ctrl-C waits for what is cancelled to put its things in order.
_SETTLE_SECONDS = 10.0

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
S = TypeVar("S", bound="_Face[Any]")


class _LoopThread:
    """An event loop in a thread, where coroutines run for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="producer-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], meanwhile: Callable[[], None] = lambda: None) -> T:
        """What a coroutine returns; `meanwhile` runs here. Ctrl-C cancels it.

        Raises:
            RuntimeError: the thread has ended.
        """
        if self.is_closed:
            coroutine.close()
            raise RuntimeError("the client is closed")
        over = Event()
        running = asyncio.run_coroutine_threadsafe(_noting(coroutine, over), self._loop)
        try:
            meanwhile()
            return running.result()
        except BaseException:
            if running.cancel():
                over.wait(_SETTLE_SECONDS)
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the thread has ended."""
        return self._loop.is_closed()

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _noting(coroutine: Coroutine[Any, Any, T], over: Event) -> T:
    try:
        return await coroutine
    finally:
        over.set()


class _Face(Generic[A]):
    """What stands before an asynchronous object."""

    def __init__(self, behind: A, loop: _LoopThread) -> None:
        self._behind = behind
        self._loop = loop


def _blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[A], P], T]:
    """The method that waits for what `method` of the object behind returns."""

    @functools.wraps(method)
    def wait(self: _Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._behind, *args, **kwargs))

    return wait


def _iterating(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[_Face[A], P], Iterator[T]]:
    """The method that gives what `method` of the object behind gives, as it comes."""

    @functools.wraps(method)
    def iterate(self: _Face[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        given = method(self._behind, *args, **kwargs)
        try:
            while page := self._loop.run(_next(given)):
                yield from page
        finally:
            if not self._loop.is_closed:
                self._loop.run(given.aclose())

    return iterate


async def _next(given: AsyncGenerator[T, None]) -> list[T]:
    """The next item alone, or nothing after the last."""
    async for item in given:
        return [item]
    return []


def _as(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., T]], Callable[Concatenate[S, P], T]]:
    """Gives a method the parameters and the documentation of another one."""

    def dress(plain: Callable[..., T]) -> Callable[Concatenate[S, P], T]:
        returned = inspect.signature(plain).return_annotation
        functools.update_wrapper(plain, method)
        plain.__signature__ = inspect.signature(method).replace(return_annotation=returned)  # type: ignore[attr-defined]
        return plain

    return dress


class SyncJob(_Face[Job]):
    """A `producer.Job` whose methods wait for what they return."""

    @property
    def id(self) -> str:
        """What `producer` calls it."""
        return self._behind.id

    @property
    def submitted(self) -> Submitted | None:
        """What became of the submission that this object came from; None where it came from a look-up."""
        return self._behind.submitted

    def __repr__(self) -> str:
        """For people who debug."""
        return f"<{type(self).__name__} {self.id}>"

    status = _blocking(Job.status)
    wait = _blocking(Job.wait)
    progress = _iterating(Job.progress)
    cancel = _blocking(Job.cancel)
    pause = _blocking(Job.pause)
    resume = _blocking(Job.resume)
    retry = _blocking(Job.retry)
    purge = _blocking(Job.purge)
    _result_pages = _iterating(Job.result_pages)

    @_as(Job.results)
    def results(self, **how: Any) -> Iterator[Result]:
        """As `Job.results`."""
        for page in self._result_pages(**how):  # a page at a time: going from thread to thread takes its time
            yield from page


class SyncClient(_Face[Client]):
    """A `producer.Client` whose methods wait for what they return. It is open until `close`, or the end of `with`.

    Methods can be called from several threads, and from where an event loop runs already.
    """

    @_as(Client.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As `Client`, and connect.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        super().__init__(Client(*args, **kwargs), _LoopThread())
        try:
            self._loop.run(self._behind.__aenter__())
        except BaseException:
            self._loop.close()
            raise

    def __enter__(self) -> Self:
        """It is open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the connection; jobs go on. Nothing happens the second time."""
        if not self._loop.is_closed:
            self._loop.run(self._behind.__aexit__())
            self._loop.close()

    @_as(Client.submit)
    def submit(self, rows_or_files: Submittable, **how: Any) -> SyncJob:
        """As `Client.submit`; any iterable but a sequence is gone through in the calling thread."""
        if isinstance(rows_or_files, AsyncIterable):
            return self._job(self._behind.submit(rows_or_files, **how))
        source = source_of(rows_or_files)
        if isinstance(source, RowsAtHand) and not isinstance(source.rows, Sequence):
            feed = Feed(source.name)
            return self._job(self._behind.submit(feed, **how), lambda: feed.fill(source.rows))
        return self._job(self._behind.submit(source, **how))

    @_as(Client.job)
    def job(self, id_or_name: str) -> SyncJob:
        """As `Client.job`."""
        return self._job(self._behind.job(id_or_name))

    jobs = _blocking(Client.jobs)
    served_model = _blocking(Client.served_model)

    def _job(self, found: Coroutine[Any, Any, Job], meanwhile: Callable[[], None] = lambda: None) -> SyncJob:
        return SyncJob(self._loop.run(found, meanwhile), self._loop)
