"""The pace of a counter that moves in bursts: rows end together, a shard or a batch at a time."""

#: Half of a pace comes from this share of the time that it has been followed for, but so many seconds at least, and
#: at most: several shards' time, and short enough to see that workers came or went.
_HALF_LIFE_SHARE = 0.5
_LEAST_SECONDS = 60.0
_MOST_SECONDS = 600.0

#: A counter that stands still for so many of its usual pauses, and so many seconds, has stalled.
_PAUSES = 6.0
_STALL_SECONDS = 15.0

#: What the last pause counts in the usual one.
_LAST_PAUSE = 0.3


class Pace:
    """How fast a counter grows: an exponentially weighted mean, taken from move to move.

    Between two moves the mean stays as it is, so it does not swing with the bursts. It begins with the first move
    that is seen (what came before did not begin when the watching did), unless it is told when all began. A stall is
    no pace; after it, and after the counter fell back (rows are retried), it begins with the next move again, and
    keeps what it knew.
    """

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._moved: tuple[float, float] | None = None  # the last move: when, and to what
        self._last = 0.0
        self._sum = self._weight = self._followed = 0.0
        self._pause = 0.0
        self.moves = 0
        """From how many moves the pace is known."""
        self.gained = 0.0
        """How far the counter came in these."""

    def begin(self, at: float) -> None:
        """What the counter counts begins now: the time to the first move counts, too."""
        self._moved = (at, self._last)

    def see(self, at: float, count: float) -> None:
        """The counter stands at `count` at the time `at` (seconds, never falling)."""
        if self._first is None:
            self._first, self._last = (at, count), count
        elif count < self._last:
            self._moved, self._last, self._first = None, count, (at, count)
        elif count > self._last:
            if self._moved is not None and not self.stalled(at) and at > self._moved[0]:
                self._take(at - self._moved[0], count - self._moved[1])
            self._moved, self._last = (at, count), count

    def _take(self, seconds: float, gain: float) -> None:
        self._followed += seconds
        half_life = min(max(_LEAST_SECONDS, _HALF_LIFE_SHARE * self._followed), _MOST_SECONDS)
        kept = 0.5 ** (seconds / half_life)
        self._sum = self._sum * kept + gain / seconds * (1 - kept)
        self._weight = self._weight * kept + (1 - kept)
        self._pause = seconds if not self.moves else (1 - _LAST_PAUSE) * self._pause + _LAST_PAUSE * seconds
        self.moves += 1
        self.gained += gain

    @property
    def known(self) -> float:
        """Per second, as far as it is known from moves; 0 before."""
        return self._sum / self._weight if self._weight else 0.0

    def at(self, now: float) -> float:
        """Per second, for people: 0 when it has stalled; before it is known, since the watching began."""
        if self.stalled(now) or self._first is None or self._moved is None:
            return 0.0
        if self.moves:
            return self.known
        began, count = self._first
        return (self._last - count) / (now - began) if now > began else 0.0

    def ahead(self, now: float) -> float:
        """How many seconds of the next move have gone by; not more than it usually takes."""
        return 0.0 if self._moved is None else min(now - self._moved[0], self._pause)

    def stalled(self, now: float) -> bool:
        """Does the counter stand still for much longer than it usually does?"""
        return self._moved is not None and bool(self.moves) and now - self._moved[0] > self.patience

    @property
    def patience(self) -> float:
        """After so many seconds without a move it has stalled."""
        return max(_STALL_SECONDS, _PAUSES * self._pause)

    @property
    def followed(self) -> float:
        """The seconds from which the pace is known."""
        return self._followed
