"""`make bench-producer`: a job of a million rows, submitted and fetched, on a Redis of its own; and the limits of both.

Measures, one after the other: parsing the file alone; Redis alone, given the very calls that a submission makes;
`producer submit`; and `producer results`, of lines as the fake engine writes them, which this program puts into the
record with the workers' own script (no worker runs). Programs run as a user runs them, start and end included. A table
on standard error, JSON on standard output.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from producer.intake.reading import read_rows
from producer.intake.sources import open_source
from producer.record import fetch, leases, scripts
from producer.record.connection import connect
from producer.record.models import TARGET, Answer, Outcome, Row
from producer.record.packing import Packing
from producer.record.submission import Submission
from producer.server.embedded import EmbeddedRedis

PRODUCER = Path(sys.executable).parent / "producer"
#: The load of a machine (processes that want a core, per core) above which its numbers are not worth much.
QUIET = 0.25
#: Shards whose results are written in one round trip.
_SHARDS = 16
#: Runs a program and writes down what it took. A child of this process would begin with the peak memory of this one.
_LAUNCHER = """
import json, resource, subprocess, sys
ended = subprocess.run(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
json.dump([used.ru_maxrss / 1024, used.ru_utime + used.ru_stime], open(sys.argv[1], "w"))
sys.exit(ended.returncode)
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One part's numbers.

    Attributes:
        what: the part.
        seconds: wall clock.
        rows_per_s: rows a second.
        cpu_s: processor time of the program.
        redis_cpu_s: processor time of Redis meanwhile.
        peak_mb: the most memory that the program took, in MB; 0 where it is this one.
    """

    what: str
    seconds: float
    rows_per_s: float
    cpu_s: float
    redis_cpu_s: float
    peak_mb: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the file (default: 1000000)")
    parser.add_argument("--row-bytes", type=int, default=300, help="bytes of a row (default: 300)")
    asked = parser.parse_args()
    people = Console(stderr=True, highlight=False)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    people.print(f"load of this machine at the start: {load:.2f} a core ({os.cpu_count()} cores)")
    if load > QUIET:
        people.print("it is not quiet: the numbers below are too low")
    with tempfile.TemporaryDirectory(prefix="minedraft-bench-") as folder:
        parts = asyncio.run(bench(Path(folder), asked.rows, asked.row_bytes))
    people.print(_table(parts))
    sys.stdout.write(
        json.dumps({"load_per_core": load, "rows": asked.rows, "parts": [asdict(p) for p in parts]}) + "\n"
    )
    return 0


def _table(parts: list[Measured]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in Measured.__slots__:
        table.add_column(name.replace("_", " "), justify="left" if name == "what" else "right")
    for part in parts:
        numbers = (part.seconds, part.rows_per_s, part.cpu_s, part.redis_cpu_s, part.peak_mb)
        table.add_row(part.what, *(f"{number:,.0f}" if number > 100 else f"{number:,.1f}" for number in numbers))
    return table


async def bench(folder: Path, rows: int, row_bytes: int) -> list[Measured]:
    """Start everything, measure, and end everything."""
    file = folder / "rows.jsonl"
    write_rows(file, rows, row_bytes)
    server = EmbeddedRedis(folder / "data" / "redis")
    server.start()
    try:
        async with connect(server.url) as redis:
            measure = Measure(redis, rows)
            parts = [await measure.here("parsing alone", lambda: parse(file))]
            parts.append(await redis_alone(measure, file))
            await redis.flushall()
            environment = os.environ | {"MINEDRAFT_DATA_DIR": str(folder / "data"), "MINEDRAFT_REDIS_URL": server.url}
            submitted, job_id = await measure.program("submit", ["submit", str(file)], environment)
            parts.append(submitted)
            await answer(redis)
            parts.append(await measure.here("reading results alone", lambda: read(redis, job_id.strip())))
            for order in ("input", "done"):
                argv = ["results", job_id.strip(), "-o", str(folder / f"{order}.jsonl"), "--order", order]
                parts.append((await measure.program(f"results, order {order}", argv, environment))[0])
            return parts
    finally:
        server.stop()


def write_rows(file: Path, rows: int, row_bytes: int) -> None:
    """A file of short rows with a `custom_id`, all of them different."""
    empty = len(json.dumps({"custom_id": "r000000", "prompt": "", "max_tokens": 16})) + 1
    with file.open("w") as stream:
        for number in range(rows):
            prompt = f"{number} ".ljust(row_bytes - empty, "x")
            stream.write(json.dumps({"custom_id": f"r{number:06}", "prompt": prompt, "max_tokens": 16}) + "\n")


@dataclass(slots=True)
class Measure:
    """Clocks around a part."""

    redis: Redis
    rows: int

    async def _redis_cpu(self) -> float:
        used = await self.redis.info("cpu")
        return float(used["used_cpu_user"] + used["used_cpu_sys"])

    async def here(self, what: str, work: Callable[[], Any]) -> Measured:
        """Do it in this process."""
        before, cpu, started = await self._redis_cpu(), time.process_time(), time.monotonic()
        await work()
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
        return Measured(what, seconds, self.rows / seconds, cpu, await self._redis_cpu() - before, 0)

    async def program(self, what: str, argv: list[str], environment: dict[str, str]) -> tuple[Measured, str]:
        """`producer ...`, and what it printed."""
        before, started = await self._redis_cpu(), time.monotonic()
        printed, peak, cpu = await asyncio.to_thread(_run, argv, environment)
        seconds = time.monotonic() - started
        return Measured(what, seconds, self.rows / seconds, cpu, await self._redis_cpu() - before, peak), printed


def _run(argv: list[str], environment: dict[str, str]) -> tuple[str, float, float]:
    """`producer ...`: what it printed, its peak memory (MB) and its processor time (s)."""
    with tempfile.NamedTemporaryFile("r") as numbers:
        command = [sys.executable, "-c", _LAUNCHER, numbers.name, PRODUCER, *argv]
        ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        peak, cpu = json.load(numbers)
    return ended.stdout, peak, cpu


async def parse(file: Path) -> None:
    """All of intake: lines, JSON, checks, names, and the rows as they are stored."""
    for _, row in read_rows(open_source([str(file)]), "refuse"):
        assert isinstance(row, Row)
        row.to_json()


async def redis_alone(measure: Measure, file: Path) -> Measured:
    """The calls that a submission makes, prepared; a batch of them at a time, as it sends them."""
    staged = await Submission.begin(measure.redis, model=TARGET, name="bench")
    packing = Packing(Submission.BUFFERED_BYTES)
    batches: list[list[scripts.Call]] = [[]]
    size = 0

    def cut() -> None:
        if (call := packing.cut("0" * 64)) is not None:
            batches[-1].append(("stage", call.argv(staged.job_id, staged.owner)))

    for _, row in read_rows(open_source([str(file)]), "refuse"):
        assert isinstance(row, Row)
        text = row.to_json().encode()
        size += len(text)
        if packing.add(row.index, text):
            cut()
        if size > Submission.BUFFERED_BYTES:
            batches.append([])
            size = 0
    cut()

    async def send() -> None:
        for batch in batches:
            await scripts.run_many(measure.redis, batch)

    return await measure.here("Redis alone (staging)", send)


async def answer(redis: Redis) -> None:
    """Ends every row, with lines as the fake engine's."""
    text = "word " * 60
    while True:
        batches = []
        for _ in range(_SHARDS):
            claim = await leases.claim(redis, served=TARGET, lease_ms=60_000)
            if claim is not None:
                batches.append((claim.lease, [Outcome.answered(row, _answer(text)) for row in claim.rows]))
        if not batches:
            return
        await leases.finish(redis, batches)


def _answer(text: str) -> Answer:
    usage = {"prompt_tokens": 60, "completion_tokens": 60, "total_tokens": 120}
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "length"}
    return Answer({"object": "text_completion", "model": TARGET, "choices": [choice], "usage": usage}, 60, 60)


async def read(redis: Redis, job_id: str) -> None:
    """Every result, as it comes from Redis."""
    async for _ in fetch.results(redis, job_id, order="input"):
        pass


if __name__ == "__main__":
    sys.exit(main())
