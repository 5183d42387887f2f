"""Is Redis with us? Whoever talks to it says how that went; an outage is one story, told at its two ends."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import RedisError

from producer.record.connection import Patience, told
from producer.record.trouble import Trouble, trouble
from worker.backoff import Backoff
from worker.metrics import Metrics

log = logging.getLogger(__name__)

#: A worker holds leases that run out: it gives up a dead connection long before they do.
WORKER_PATIENCE = Patience(connect=2.0, answer=5.0)

#: The longest pause between two tries: work goes on within 5 s of Redis' return.
MOST_SECONDS = 2.0

#: In an outage as short as this no lease of a living worker runs out: 10 s, less the 3 s since it was last renewed and
#: the pause before it is tried again.
BRIEF_SECONDS = 4.0

#: The caller whose failures keep nobody else from trying.
CLAIMS = "claims"


class RedisHealth:
    """Keeps count of the callers whose last call of Redis failed; an outage lasts while there is one.

    So a disk that is full is one outage, though reading works all the time. An error that is about one call alone
    is none.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._failing: dict[str, Trouble] = {}
        self._since = self._disturbed = time.monotonic()
        self._waiting = self._waited = 0
        self._better = asyncio.Event()  # set, and replaced, whenever a caller recovers
        self._refusals: dict[str, str] = {}
        self._worked: dict[str, float] = {}
        self._claims_fail = False
        self._claims = Backoff(most=MOST_SECONDS)
        metrics.redis_up.set(1)

    @contextmanager
    def watch(self, caller: str) -> Iterator[None]:
        """Report for `caller` how the calls of Redis in the block went; their errors are raised as they are."""
        began = time.monotonic()
        try:
            yield
        except (RedisError, OSError) as error:
            self.failed(caller, error, max(began, self._worked.get(caller, began)))
            raise
        self.worked(caller)

    def failed(self, caller: str, error: Exception, began: float | None = None) -> None:
        """A call of `caller` failed that `began` then (monotonic; default: just now): Redis may be away since."""
        kind = trouble(error)
        self._metrics.redis_errors.labels(kind=kind).inc()
        self._claims_fail |= caller == CLAIMS
        if kind is Trouble.OTHER:  # about this call alone, and an answer: no reason for the others to wait
            self._answered(caller)
            if self._refusals.get(caller) != (said := told(error)):
                log.error("%s: Redis refuses: %s", caller, said)
            self._refusals[caller] = said
            return
        if not self._failing:
            self._since, self._waited = began or time.monotonic(), self._waiting
            self._metrics.redis_up.set(0)
            if kind is Trouble.FULL:
                log.warning("Redis is full: %s; no new rows are claimed", told(error))
            else:
                what = "Redis is away (%s): %s; no new rows are claimed; finished rows wait"
                log.warning(what, _words(kind), told(error))
        elif kind not in self._failing.values():
            log.warning("Redis is still away, now (%s): %s", _words(kind), told(error))
        self._failing[caller] = kind

    def worked(self, caller: str) -> None:
        """A call of `caller` succeeded."""
        self._worked[caller] = time.monotonic()
        if caller == CLAIMS:
            self._claims_fail = False
            self._claims.reset()
        self._refusals.pop(caller, None)
        self._answered(caller)

    def _answered(self, caller: str) -> None:
        if self._failing.pop(caller, None) is None:
            return
        if not self._failing:
            self._metrics.redis_up.set(1)
            now = time.monotonic()
            log.info("Redis is back after %.3g s, %d results waited", now - self._since, self._waited)
            if now - self._since >= BRIEF_SECONDS:
                self._disturbed = now
        self._better.set()
        self._better = asyncio.Event()

    async def pause(self, backoff: Backoff) -> None:
        """Wait before the next try: for the backoff, or until some other caller has met Redis again."""
        await _first(self._better, backoff.next())

    async def ready(self) -> None:
        """Returns when a claim may be tried: at once, or when Redis is back. Claims that fail are spread out."""
        while self._failing.keys() - {CLAIMS}:
            await self._better.wait()
        if self._claims_fail:
            await self.pause(self._claims)

    def quiet_for(self, seconds: float) -> bool:
        """Was there no outage in the last so many seconds, but brief ones, and is this process up that long?"""
        return not self._failing and time.monotonic() - self._disturbed >= seconds

    def waits(self, results: int) -> None:
        """So many results are finished and not yet in Redis."""
        self._waiting = results
        self._waited = max(self._waited, results)
        self._metrics.results_waiting.set(results)


def _words(kind: Trouble) -> str:
    return kind.replace("_", " ")


async def _first(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
