"""What others compute, from an imagined /proc, and once from the real one."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from worker.lab.quiet import MOST_FOREIGN_CORES, Use, Watch, check

OURS, ENGINE, RANK, INIT, OTHER = 100, 101, 102, 1, 900


class Machine:
    """A /proc with a clock: 100 ticks a second."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.now = folder, 1000.0
        self.processes: dict[int, tuple[int, str, int, int]] = {}
        (folder / "self").mkdir()
        self.machine(0)

    def machine(self, work: int, steal: int = 0) -> None:
        """Set the machine's books (ticks): `work` in parts, and what is none (idle, iowait, guest)."""
        parts = [work - 4, 1, 1, 5555, 77, 1, 1, steal, 9, 9]
        (self.proc / "stat").write_text(f"cpu  {' '.join(map(str, parts))}\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n")

    def process(self, number: int, parent: int, ticks: int, of_ended: int = 0, name: str = "x", start: int = 7) -> None:
        """Set a process's books; ticks are half user's, half system's."""
        (self.proc / str(number)).mkdir(exist_ok=True)
        user, system = ticks // 2, ticks - ticks // 2
        fields = ["S", parent, 1, 1, 0, -1, 4194304, 5, 0, 0, 0, user, system, of_ended, 0, 20, 0, 1, 0, start, 9, 9]
        (self.proc / str(number) / "stat").write_text(f"{number} ({name}) {' '.join(map(str, fields))}\n")

    def end(self, number: int) -> None:
        (self.proc / str(number) / "stat").unlink()

    def watch(self) -> Watch:
        return Watch(self.proc, OURS, lambda: self.now)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.machine(10_000)
    machine.process(INIT, 0, 500)
    machine.process(OURS, INIT, 40)
    machine.process(ENGINE, OURS, 300)
    machine.process(RANK, ENGINE, 1000)
    machine.process(OTHER, INIT, 2000, name="python")
    return machine


def test_only_our_own_work_is_quiet(machine: Machine) -> None:
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000 + 1950)
        machine.process(OURS, INIT, 40 + 50)
        machine.process(RANK, ENGINE, 1000 + 1900)
    assert (watch.use.foreign, watch.use.stolen, watch.use.biggest) == (0, 0, None)
    assert watch.use.disturbance == ""


def test_another_program_is_named(machine: Machine) -> None:
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000 + 1400)
        machine.process(RANK, ENGINE, 1000 + 1000)
        machine.process(OTHER, INIT, 2000 + 390, name="py (th) on")
    assert watch.use.foreign == pytest.approx(0.4)
    assert watch.use.disturbance == "another program uses 0.40 cores (py (th) on 900)"


def test_a_program_that_just_came(machine: Machine) -> None:
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000 + 200)
        machine.process(901, OTHER, 150, name="cc")
    assert watch.use.disturbance == "another program uses 0.20 cores (cc 901)"


def test_many_programs(machine: Machine) -> None:
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000 + 400)
        machine.process(OTHER, INIT, 2000 + 100, name="cc")
        machine.process(901, INIT, 90, name="ld")
    assert watch.use.disturbance == "other programs use 0.40 cores (most of all cc 900: 0.10)"


def test_what_cannot_be_seen(machine: Machine) -> None:
    """In a container, the machine's books hold what runs beside it."""
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000 + 1000)
    assert watch.use.disturbance == "something outside of what can be seen from here uses 1.00 cores"


def test_children_that_end_stay_ours(machine: Machine) -> None:
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000 + 1000)
        machine.end(RANK)  # with 1,400 ticks in all; another one came and ended in between
        machine.process(ENGINE, OURS, 300, of_ended=1400 + 600)
    assert watch.use.foreign == 0


def test_what_our_ended_children_took_before_is_not_counted_now(machine: Machine) -> None:
    machine.process(OURS, INIT, 40, of_ended=5000)
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000 + 1000)
        machine.process(OURS, INIT, 40 + 1000, of_ended=5000)
    assert watch.use.foreign == 0


def test_a_child_whose_parent_ended_first_stays_ours(machine: Machine) -> None:
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000 + 1000)
        machine.process(OURS, INIT, 40, of_ended=300)
        machine.end(ENGINE)
        machine.process(RANK, INIT, 1000 + 1000)
        machine.process(103, RANK, 0)
    assert watch.use.foreign == 0


def test_a_number_used_again_is_another_process(machine: Machine) -> None:
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000 + 500)
        machine.process(ENGINE, OURS, 300, of_ended=1000)
        machine.process(RANK, INIT, 500, start=99, name="cron")
    assert watch.use.disturbance == "another program uses 0.50 cores (cron 102)"


def test_steal_disturbs_like_a_program(machine: Machine) -> None:
    with machine.watch() as watch:
        machine.now += 10
        machine.machine(10_000, steal=300)
    assert watch.use.disturbance == "the hypervisor gives 0.30 cores to other machines"


def test_both_together_are_too_much() -> None:
    assert Use(foreign=MOST_FOREIGN_CORES, stolen=0).disturbance == ""
    assert Use(foreign=0.06, stolen=0.05, biggest="cc 1", biggest_cores=0.06).disturbance == (
        "another program uses 0.06 cores (cc 1)"
    )
    assert "; the hypervisor gives" in Use(foreign=0.5, stolen=0.2).disturbance


def test_the_real_books_know_our_children_from_others() -> None:
    """Seen from a child of ours, a busy other one is foreign; seen from here, both are ours."""
    idle = subprocess.Popen(["sleep", "60"])
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        with Watch(root=idle.pid) as other, Watch() as own:
            before, began = sum(psutil.Process(busy.pid).cpu_times()[:2]), time.monotonic()
            time.sleep(1)
            used = (sum(psutil.Process(busy.pid).cpu_times()[:2]) - before) / (time.monotonic() - began)
    finally:
        for child in (idle, busy):
            child.kill()
            child.wait()
    # Others may be busy here, too, and leave it less than a core: how much is ours is what the two differ by.
    assert used > 0
    assert other.use.foreign - own.use.foreign > used - 0.1
    assert other.use.biggest_cores > 0.2


def test_a_look_at_the_machine_says_words() -> None:
    assert isinstance(check(0.1), str)
