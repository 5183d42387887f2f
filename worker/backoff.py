"""Waiting longer after every failure, with jitter so that a fleet does not come back all at once."""

import asyncio
import random


class Backoff:
    """Delays of `first` seconds, doubled each time up to `most`, each times a random factor in [0.5, 1]."""

    def __init__(self, first: float = 0.1, most: float = 5.0) -> None:
        self._first, self._most = first, most
        self._next = first

    def next(self) -> float:
        """The next delay in seconds."""
        delay, self._next = self._next, min(self._next * 2, self._most)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret

    async def wait(self) -> None:
        """Sleep for the next delay."""
        await asyncio.sleep(self.next())

    def reset(self) -> None:
        """Start over: the last try was a success."""
        self._next = self._first
