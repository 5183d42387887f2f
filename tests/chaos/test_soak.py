"""One two-batch engine answers 10,000 requests, some given up midway, and holds no more in the end than early on.

Memory is judged by its trend: a leak of one KiB a request is a slope of 1 MiB per 1,000 requests. Two things would hide
it, and are off here (`QUIET`). oneDNN, which multiplies matrices for PyTorch, keeps the code that it makes for each
number of tokens that it meets: the last 1,024 pieces, 0.4 GiB a rank after thousands of requests. And malloc keeps what
was free, which makes a rank's memory go up and down by 8 MiB. What remained was 0.02 to 0.4 MiB per 1,000 requests, as
vLLM keeps code for up to 32 shapes a layer, too.
"""

import asyncio
import gc
import os
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
from integration.worker.engine.real_engine import completion
from integration.worker.minedraft.both_engines import SERVED, ranks, running

from producer.record.models import Row
from worker.engine.vllm import VllmEngine, VllmOptions
from worker.lab.pairs import build_pair

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

REQUESTS = 10_000
#: Requests between two looks; at each look nothing is in flight.
ROUND = 500
#: Requests until caches are full.
WARM_UP = 2_000
IN_FLIGHT = 64
GIVEN_UP = 0.05
#: MiB of a process per 1,000 requests.
MOST_GROWTH = 1.0
#: 64 rows need 192 blocks at most. So few, that each has been written to (and is in memory) when warm-up is over.
FLAGS = "--max-model-len 512 --block-size 32 --num-gpu-blocks-override 256"
#: For the engine's processes: memory that is not in use is given back.
QUIET = {
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
HERE = "here"
SHARED_MEMORY = Path("/dev/shm")
_SHARED = re.compile(rf"(\d+) +{SHARED_MEMORY}/")  # the inode number in a line of /proc/PID/maps


@dataclass(frozen=True)
class Look:
    """What is held at one moment.

    Attributes:
        rss: memory of each process (MiB).
        counted: what must not become more: open files and threads of each process, tasks here and in vLLM's front
            end, shared memory (files and bytes).
    """

    requests: int
    rss: dict[str, float]
    counted: dict[str, int]


class Observer:
    """Looks at an engine's processes and at this one."""

    def __init__(self, engine: VllmEngine) -> None:
        assert engine._thread is not None
        self._loops = {"tasks here": asyncio.get_running_loop(), "tasks of vLLM": engine._thread._loop}
        self._processes = {**ranks(), HERE: psutil.Process()}
        assert len(self._processes) == 4
        self._inodes: set[str] = set()

    def notice_shared_memory(self) -> None:
        """Learn which files in shared memory are ours: other programs have theirs there, too."""
        for process in self._processes.values():
            self._inodes.update(_SHARED.findall(Path(f"/proc/{process.pid}/maps").read_text()))

    def look(self, requests: int) -> Look:
        """See all that is held after so many requests."""
        gc.collect()
        self.notice_shared_memory()
        shared = [it.stat() for it in os.scandir(SHARED_MEMORY) if str(it.inode()) in self._inodes]
        counted = {name: len(asyncio.all_tasks(loop)) for name, loop in self._loops.items()}
        for name, process in self._processes.items():
            counted[f"files of {name}"] = process.num_fds()
            counted[f"threads of {name}"] = process.num_threads()
        counted["shared files"], counted["shared bytes"] = len(shared), sum(it.st_size for it in shared)
        rss = {name: process.memory_info().rss / 1024**2 for name, process in self._processes.items()}
        return Look(requests, rss, counted)


async def test_ten_thousand_requests_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    target, draft = map(str, build_pair(tmp_path))
    options = VllmOptions(
        target, SERVED, "psd", draft, num_speculative_tokens=3, max_num_seqs=IN_FLIGHT, engine_args=FLAGS
    )
    dice = random.Random(0)
    looks: list[Look] = []
    given_up = 0
    async with running(options) as engine:
        observer = Observer(engine)
        for done in range(ROUND, REQUESTS + 1, ROUND):
            given_up += await one_round(engine, observer, dice)
            looks.append(observer.look(done))
    print(table(looks))
    assert GIVEN_UP / 2 < given_up / REQUESTS < GIVEN_UP * 2
    settled = [look for look in looks if look.requests >= WARM_UP]
    slopes = {name: slope(settled, name) for name in settled[0].rss}
    print("MiB per 1,000 requests:", {name: round(value, 3) for name, value in slopes.items()})
    assert max(slopes.values()) < MOST_GROWTH, slopes
    first, last = settled[0].counted, settled[-1].counted
    assert {name: (first[name], count) for name, count in last.items() if count > first[name]} == {}


async def one_round(engine: VllmEngine, observer: Observer, dice: random.Random) -> int:
    """Have `ROUND` requests answered, `IN_FLIGHT` at once; how many of them were given up."""
    rows = (a_row(dice) for _ in range(ROUND))
    observer.notice_shared_memory()
    given_up = await asyncio.gather(*(answer_some(engine, rows, dice) for _ in range(IN_FLIGHT)))
    return sum(given_up)


def a_row(dice: random.Random) -> Row:
    prompt = [dice.randrange(40, 500) for _ in range(dice.randint(4, 60))]
    return completion(prompt, max_tokens=dice.randint(1, 8), temperature=0, ignore_eos=True)


async def answer_some(engine: VllmEngine, rows: Iterator[Row], dice: random.Random) -> int:
    """Have rows answered, one after the other, while there are some; how many were given up."""
    given_up = 0
    for row in rows:
        call = asyncio.create_task(engine.answer(row))
        if dice.random() < GIVEN_UP * 1.2:  # some are answered before
            await asyncio.wait({call}, timeout=dice.uniform(0, 0.3))
            call.cancel()
        await asyncio.wait({call})
        if call.cancelled():
            given_up += 1
        else:
            assert call.result().completion_tokens == row.body["max_tokens"]
    return given_up


def slope(looks: Sequence[Look], name: str) -> float:
    """Growth of a process by least squares (MiB per 1,000 requests)."""
    thousands = [look.requests / 1000 for look in looks]
    return float(np.polyfit(thousands, [look.rss[name] for look in looks], 1)[0])


def table(looks: Sequence[Look]) -> str:
    """All looks, a line each; of each process its MiB, files and threads."""
    names = list(looks[0].rss)
    rest = [name for name in looks[0].counted if " of minedraft" not in name and HERE not in name.split()[2:]]
    lines = ["  ".join(["requests", *(f"{name} MiB/files/threads" for name in names), *rest])]
    for look in looks:
        cells = [
            f"{look.rss[name]:.1f}/{look.counted[f'files of {name}']}/{look.counted[f'threads of {name}']}"
            for name in names
        ]
        lines.append("  ".join([str(look.requests), *cells, *(str(look.counted[name]) for name in rest)]))
    return "\n".join(lines)
