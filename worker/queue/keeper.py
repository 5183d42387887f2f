"""Keeps what this worker holds: the leases of its shards and the arq tokens that it runs."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from arq.constants import in_progress_key_prefix
from redis.asyncio import Redis

from producer.record import leases
from producer.record.leases import Lease

#: How long a silent worker's shards stay its own: with the reaper's pace they run again within 15 s of its death.
LEASE_SECONDS = 10.0

#: How often leases are renewed: three tries may fail at once before one runs out, or one may get no answer.
RENEW_SECONDS = LEASE_SECONDS / 4

#: The same in the unit that Redis takes.
LEASE_MS = int(LEASE_SECONDS * 1000)


class Keeper:
    """Renews everything that is held; `renew` is to be called every `RENEW_SECONDS`.

    arq marks a token as running for a fixed time and never renews that; here the mark is renewed like a
    lease, so a dead worker's tokens come back with its shards and none is run twice.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._leases: dict[Lease, asyncio.Event] = {}
        self._tokens: set[str] = set()

    @contextmanager
    def token(self, token: str) -> Iterator[None]:
        """Keep arq's mark on `token` while the block runs."""
        self._tokens.add(token)
        try:
            yield
        finally:
            self._tokens.discard(token)

    @contextmanager
    def lease(self, lease: Lease, lost: asyncio.Event) -> Iterator[None]:
        """Keep `lease` while the block runs; `lost` is set when it turns out to be lost (or finished)."""
        self._leases[lease] = lost
        try:
            yield
        finally:
            del self._leases[lease]

    async def renew(self) -> None:
        """Prolong everything held by `LEASE_SECONDS`, counted from now."""
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.ping()  # whoever holds nothing asks, too: that this works is what others rely on
            for token in self._tokens:
                pipe.pexpire(in_progress_key_prefix + token, LEASE_MS)
            await pipe.execute()
        for lease in await leases.renew(self._redis, list(self._leases), lease_ms=LEASE_MS):
            event = self._leases.get(lease)
            if event is not None:
                event.set()
