"""Is the machine quiet? What others compute meanwhile, from the system's own books of CPU time (Linux).

Foreign is all CPU time of the machine but that of this process and its descendants. `/proc/stat` counts it in ticks of
10 ms, which two readings of a second or more apart make exact enough. The books of a process hold what its ended
children took, so nothing of ours is lost when a child ends. What the hypervisor gives to other machines ("steal") is
nobody's here, and disturbs as much.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

#: More than this, in cores, is not quiet. It must be above what an idle system does by itself (0.02 or less: timers,
#: kernel threads) and what the counting in ticks blurs, and below what changes a result: where every core is busy, 0.1
#: cores more slow the lane that they hit by at most a tenth, and a median over turns by less.
MOST_FOREIGN_CORES = 0.10

#: Of `cpu` in /proc/stat, in ticks: user, nice, system, irq, softirq. (Guests' time is part of user's.)
_WORK = (0, 1, 2, 5, 6)
_STEAL = 7
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Pid(NamedTuple):
    """A process; its start, in ticks since boot, tells it from a later one with the same number."""

    number: int
    start: int


class Process(NamedTuple):
    """What /proc/PID/stat says. Times in ticks; `of_ended` is that of children that have ended and were waited for."""

    pid: Pid
    parent: int
    name: str
    time: int
    of_ended: int


@dataclass(frozen=True, slots=True)
class Use:
    """What disturbed over a while, in cores.

    Attributes:
        foreign: what other processes and the kernel took.
        stolen: what the hypervisor gave to others.
        biggest: the foreign process that took most, as "name pid"; None: none was seen.
        biggest_cores: what that one took.
    """

    foreign: float
    stolen: float
    biggest: str | None = None
    biggest_cores: float = 0.0

    @property
    def disturbance(self) -> str:
        """What disturbed, in words for people; empty when it was quiet."""
        if self.foreign + self.stolen <= MOST_FOREIGN_CORES:
            return ""
        said = []
        if self.foreign >= self.stolen or self.foreign > MOST_FOREIGN_CORES:
            said.append(self._foreign_words())
        if self.stolen >= self.foreign or self.stolen > MOST_FOREIGN_CORES:
            said.append(f"the hypervisor gives {self.stolen:.2f} cores to other machines")
        return "; ".join(said)

    def _foreign_words(self) -> str:
        if self.biggest is None:
            return f"something outside of what can be seen from here uses {self.foreign:.2f} cores"
        if self.biggest_cores > self.foreign / 2:
            return f"another program uses {self.foreign:.2f} cores ({self.biggest})"
        return f"other programs use {self.foreign:.2f} cores (most of all {self.biggest}: {self.biggest_cores:.2f})"


class Watch:
    """Measures what others use from `__enter__` to `__exit__`: `with Watch() as watch: ...; watch.use`.

    A process that was once seen below this one stays ours, also when its parent ends first. A daemon that left before
    it was seen is foreign, and so is what a process takes that ends without being waited for.

    Args:
        proc: where the system's books are.
        root: the process that is ours, with all its descendants; by default this one.
        clock: seconds.

    Attributes:
        use: what disturbed; there after `__exit__`.
    """

    use: Use

    def __init__(
        self, proc: Path = Path("/proc"), root: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc, self._root, self._clock = proc, root or os.getpid(), clock
        self._ours: set[Pid] = set()

    def __enter__(self) -> Self:
        """Begin."""
        self._started = self._clock()
        self._work, self._stolen = self._machine()
        self._before = self._processes()
        return self

    def __exit__(self, *_: object) -> None:
        """End, and compute `use`."""
        ticks = (self._clock() - self._started) * _TICKS_PER_S
        work, stolen = self._machine()
        after = self._processes()
        ours = self._time_of_ours(after) - self._time_of_ours(self._before)
        took = {
            pid: process.time - (self._before[pid].time if pid in self._before else 0)
            for pid, process in after.items()
            if pid not in self._ours
        }
        most = max(took, key=lambda pid: took[pid], default=None)
        seen = most is not None and took[most] > 0
        self.use = Use(
            foreign=max(work - self._work - ours, 0) / ticks,
            stolen=(stolen - self._stolen) / ticks,
            biggest=f"{after[most].name} {most.number}" if most and seen else None,
            biggest_cores=took[most] / ticks if most and seen else 0.0,
        )

    def _machine(self) -> tuple[int, int]:
        """Ticks of work and of steal since boot."""
        fields = [int(field) for field in (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:]]
        return sum(fields[index] for index in _WORK), fields[_STEAL]

    def _processes(self) -> dict[Pid, Process]:
        """All that can be seen; ours are added to those that are known."""
        found = {}
        for folder in self._proc.iterdir():
            if folder.name.isdigit() and (process := _read(folder)) is not None:
                found[process.pid] = process
        children: dict[int, list[Pid]] = {}
        for process in found.values():
            children.setdefault(process.parent, []).append(process.pid)
        new = [pid for pid in found if pid.number == self._root or pid in self._ours]
        while new:
            self._ours.update(new)
            new = [child for pid in new for child in children.get(pid.number, ()) if child not in self._ours]
        return found

    def _time_of_ours(self, processes: dict[Pid, Process]) -> int:
        return sum(process.time + process.of_ended for pid, process in processes.items() if pid in self._ours)


def check(seconds: float = 2.0) -> str:
    """Look at the machine for a while, and do nothing meanwhile.

    Returns:
        What disturbs, in words for people; empty when it is quiet.
    """
    with Watch() as watch:
        time.sleep(seconds)
    return watch.use.disturbance


def _read(folder: Path) -> Process | None:
    """A process, by its folder in /proc; None when it has just ended."""
    try:
        text = (folder / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold anything, parentheses too (proc_pid_stat(5)).
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    user, system, ended_user, ended_system = (int(field) for field in fields[11:15])
    pid = Pid(int(folder.name), int(fields[19]))
    return Process(pid, int(fields[1]), name, user + system, ended_user + ended_system)
