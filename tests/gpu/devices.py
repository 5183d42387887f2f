"""What a part of tier A computes on: a GPU, or this machine's CPU, which stands for one in a dry run."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

#: Runs of what is calibrated.
_RUNS = 50
_SIDE = 4096
_SMALL = 1 << 23


class Mark(Protocol):
    """A place in what was asked of a device."""

    def wait(self) -> None:
        """Wait until the device is past it."""
        ...


class Worker(Protocol):
    """A device that does made-up work."""

    device: torch.device

    def spin(self, ms: float) -> None:
        """Do one thing that takes so long."""
        ...

    def heavy(self, ms: float) -> Callable[[], None]:
        """Something that takes so long and fills the device, as a verify pass does."""
        ...

    def small(self, ms: float) -> Callable[[], None]:
        """Many little things that take so long together, as the passes of a drafter are."""
        ...

    def mark(self) -> Mark:
        """This place."""
        ...

    def no_waiting(self) -> contextlib.AbstractContextManager[None]:
        """Whatever waits for the device inside the block is an error."""
        ...

    def finish(self) -> None:
        """Wait until all is done."""
        ...


class _Past:
    def wait(self) -> None:
        pass


class OnCpu:
    """It sleeps, and is done with everything as soon as it was asked for."""

    device = torch.device("cpu")

    def spin(self, ms: float) -> None:
        time.sleep(ms / 1000)

    def heavy(self, ms: float) -> Callable[[], None]:
        return lambda: time.sleep(ms / 1000)

    def small(self, ms: float) -> Callable[[], None]:
        return self.heavy(ms)

    def mark(self) -> Mark:
        return _Past()

    def no_waiting(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def finish(self) -> None:
        pass


class _Event:
    def __init__(self) -> None:
        self._event: Any = torch.cuda.Event(blocking=True)
        self._event.record()

    def wait(self) -> None:
        self._event.synchronize()


class OnCuda:
    """One GPU, which becomes this process's current one.

    Args:
        index: its number.
    """

    def __init__(self, index: int) -> None:
        torch.cuda.set_device(index)
        self.device = torch.device("cuda", index)
        probe = 1_000_000
        self._cycles_per_ms = probe / self._ms_of(lambda: torch.cuda._sleep(probe))

    def spin(self, ms: float) -> None:
        torch.cuda._sleep(int(ms * self._cycles_per_ms))

    def heavy(self, ms: float) -> Callable[[], None]:
        one, other = (torch.randn(_SIDE, _SIDE, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        into = torch.empty_like(one)
        return self._repeated(lambda: torch.mm(one, other, out=into), ms)

    def small(self, ms: float) -> Callable[[], None]:
        # Some 20 us each: shorter ones would measure how fast a CPU can ask for them.
        numbers = torch.zeros(_SMALL, device=self.device)
        return self._repeated(lambda: numbers.add_(1), ms)

    def mark(self) -> Mark:
        return _Event()

    @contextlib.contextmanager
    def no_waiting(self) -> Iterator[None]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def finish(self) -> None:
        torch.cuda.synchronize()

    def _repeated(self, work: Callable[[], Any], ms: float) -> Callable[[], None]:
        times = max(1, math.ceil(ms / self._ms_of(work)))

        def repeated() -> None:
            for _ in range(times):
                work()

        return repeated

    def _ms_of(self, work: Callable[[], Any]) -> float:
        """How long one of many takes when they are asked for one after the other."""
        for _ in range(_RUNS):  # the first ones load code, and wake the device up
            work()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(_RUNS):
            work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / _RUNS


def worker_on(device: str) -> Worker:
    """What computes on `cpu`, or on `cuda:0` and so on."""
    return OnCpu() if device == "cpu" else OnCuda(torch.device(device).index)
