"""What of a step nothing hides, by how rows take turns and whether they are drafted for; learnt from steps.

With drafts in turn a step has two messages and the drafter's preparation in it; without drafts all that hides behind V.
So one time for both would make drafts seem cheap, or plain decoding dear.

Another program can make a step ten times as long, and a way that seems dear is not taken, so it would never be seen to
be cheap again. Three rules keep a way from being locked out: of the first steps each counts as much, a step that took
more than twice what is known counts as twice, and two in a row of less than half begin it anew; and what was not seen
for long comes nearer to the least that is known, until the way is tried.
"""

from dataclasses import dataclass

from worker.strategies.seam import Way

#: Steps that what is known is the mean of, at most.
_STEPS = 20.0
#: More than so many times what is known, or less than its inverse, was disturbed; less than so much (ms) is noise.
_DISTURBED, _NOISE_MS = 2.0, 1.0
#: So many steps make a way known.
_ENOUGH = 4.0
#: Steps of any way after which what was not seen again is half forgotten, and after which it is not known any more.
_STALE, _RECENT = 1024.0, 4096


@dataclass(slots=True)
class _Host:
    """The mean of so many steps, the newest of which was the so manieth; and whether that was one of less than half."""

    ms: float = 0.0
    steps: float = 0.0
    seen: int = 0
    low: bool = False

    def add(self, ms: float, seen: int) -> None:
        self.steps *= 0.5 ** ((seen - self.seen) / _STALE)
        low = ms < self.ms / _DISTURBED and self.ms - ms > _NOISE_MS
        if low and self.low:
            self.steps = 0.0
        elif self.steps:
            ms = min(ms, max(_NOISE_MS, _DISTURBED * self.ms))
        self.low, self.seen = low, seen
        self.steps = min(_STEPS, self.steps + 1.0)
        self.ms += (ms - self.ms) / self.steps


class Hosts:
    """Learns from steps."""

    def __init__(self) -> None:
        self._of: dict[tuple[Way, bool], _Host] = {}
        self._seen = 0

    def add(self, way: Way, drafting: bool, ms: float) -> None:
        """A step took so much longer than the passes that decide it."""
        self._seen += 1
        if (way, drafting) not in self._of:
            self._of[way, drafting] = _Host(seen=self._seen)
        self._of[way, drafting].add(ms, self._seen)

    def ms(self, way: Way, drafting: bool) -> float:
        """What is known of a way, drawn to the least of all the longer it was not seen; that one if it never was."""
        least, host = self.least(drafting), self._of.get((way, drafting))
        if host is None:
            return least
        return least + (host.ms - least) * float(0.5 ** ((self._seen - host.seen) / _STALE))

    def least(self, drafting: bool) -> float:
        """The least of all ways with drafts, or without; of all where those were not seen; 0 if none was."""
        alike = [host.ms for (_, drafted), host in self._of.items() if drafted == drafting]
        return min(alike or [host.ms for host in self._of.values()], default=0.0)

    def known(self, way: Way, drafting: bool) -> bool:
        """Whether more than a few steps were seen, and not long ago."""
        host = self._of.get((way, drafting))
        return host is not None and host.steps >= _ENOUGH and self._seen - host.seen <= _RECENT
