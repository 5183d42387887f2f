"""`make bench-fleet`: what the queue itself can do, with workers that answer at once and a Redis of their own.

Measures, for one worker and for many: rows a second, from a job's first claim to its last result as the record has
it, and between a tenth and nine tenths of its rows; what workers and Redis compute for a row; commands that clients
send for a row; and what an idle worker costs. A table on standard error, JSON on standard output.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from producer.record import fleet, jobs, scripts
from producer.record.connection import connect
from producer.record.jobs import JobStatus
from producer.record.models import COMPLETIONS_URL, TARGET, Row
from producer.record.submission import Submission
from producer.server.embedded import EmbeddedRedis

# ruff: noqa: ASYNC110 - what is waited for happens in other processes
WORKER = Path(sys.executable).parent / "worker"
SAMPLE_S = 0.1
IDLE_S = 5.0
READY_S = 120.0
END_S = 45.0

#: The load of a machine (processes that want a core, per core) above which its numbers are not worth much.
QUIET = 0.25

#: Rows of the job whose commands are counted: Redis reports every one of them, which slows it down.
COUNTED_ROWS = 20_000

#: What this program itself sends while it counts.
_OWN = frozenset({"stage", "commit", "HGETALL"})

_END = "bench-fleet-end"
_COMMAND = re.compile(rb'\+[\d.]+ \[\d+ ([^\]]*)\] "([^"]*)"(?: "([^"]*)")?')


@dataclass(frozen=True, slots=True)
class Measured:
    """One fleet's numbers.

    Attributes:
        workers: how many there were.
        rows: rows of the job.
        rows_per_s: from the job's start to its end, as the record has them.
        steady_rows_per_s: between a tenth and nine tenths of the rows.
        worker_us_per_row: processor time of all workers together.
        redis_us_per_row: processor time of Redis.
        commands_per_row: commands that clients send; what scripts call inside is not counted.
        commands: the same for each command and script.
        idle_commands_per_s: what one idle worker sends.
        idle_cpu_percent: what one idle worker takes of a core.
    """

    workers: int
    rows: int
    rows_per_s: float
    steady_rows_per_s: float
    worker_us_per_row: float
    redis_us_per_row: float
    commands_per_row: float
    commands: dict[str, float]
    idle_commands_per_s: float
    idle_cpu_percent: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 32], help="sizes of fleets (default: 1 32)")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a job (default: 200000)")
    parser.add_argument("--max-num-seqs", type=int, default=64, help="rows in a worker's engine at once (default: 64)")
    asked = parser.parse_args()
    people = Console(stderr=True)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    people.print(f"load of this machine at the start: {load:.2f} a core ({os.cpu_count()} cores)", highlight=False)
    if load > QUIET:
        people.print("it is not quiet: the numbers below are too low")
    try:
        runs = [asyncio.run(bench(workers, asked.rows, asked.max_num_seqs)) for workers in asked.workers]
    except KeyboardInterrupt:
        return 130
    people.print(_table(runs))
    sys.stdout.write(json.dumps({"load_per_core": load, "runs": [asdict(run) for run in runs]}) + "\n")
    return 0


def _table(runs: list[Measured]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("workers")
    for run in runs:
        table.add_column(str(run.workers), justify="right")
    for name in Measured.__slots__:
        if name not in ("workers", "commands"):
            table.add_row(name.replace("_", " "), *(f"{getattr(run, name):,.2f}" for run in runs))
    for command in sorted({name for run in runs for name in run.commands}):
        table.add_row(f"  {command} per row", *(f"{run.commands.get(command, 0):.4f}" for run in runs))
    return table


async def bench(workers: int, rows: int, max_num_seqs: int) -> Measured:
    """Start everything, measure, and end everything."""
    with tempfile.TemporaryDirectory(prefix="minedraft-bench-") as folder:
        server = EmbeddedRedis(Path(folder) / "redis")
        server.start()
        try:
            with _workers(workers, max_num_seqs, server.url, Path(folder)) as pids:
                async with connect(server.url) as redis:
                    return await _measure(redis, server, pids, rows)
        finally:
            server.stop()


async def _measure(redis: Redis, server: EmbeddedRedis, pids: list[int], rows: int) -> Measured:
    await _ready(redis, len(pids))
    redis_pid = server.status().pid
    assert redis_pid is not None
    cpu, began = _cpu_seconds(pids), time.monotonic()
    with _counted(server.url) as idle:
        await asyncio.sleep(IDLE_S)
        await redis.echo(_END)
    idle_s = (time.monotonic() - began) * len(pids)
    idle_cpu = _cpu_seconds(pids) - cpu

    job = await _staged(redis, rows)
    cpu, redis_cpu = _cpu_seconds(pids), _cpu_seconds([redis_pid])
    ended, samples = await _watched(redis, job)
    cpu, redis_cpu = _cpu_seconds(pids) - cpu, _cpu_seconds([redis_pid]) - redis_cpu

    job = await _staged(redis, COUNTED_ROWS)
    with _counted(server.url) as sent:
        await _watched(redis, job)
        await redis.echo(_END)
    assert ended.started
    assert ended.ended
    return Measured(
        workers=len(pids),
        rows=rows,
        rows_per_s=rows / (ended.ended - ended.started),
        steady_rows_per_s=_steady(samples, rows),
        worker_us_per_row=1e6 * cpu / rows,
        redis_us_per_row=1e6 * redis_cpu / rows,
        commands_per_row=sent.total() / COUNTED_ROWS,
        commands={name: count / COUNTED_ROWS for name, count in sent.most_common()},
        idle_commands_per_s=idle.total() / idle_s,
        idle_cpu_percent=100 * idle_cpu / idle_s,
    )


async def _ready(redis: Redis, workers: int) -> None:
    async with asyncio.timeout(READY_S):
        while sum(card.state == "ready" for card in await fleet.living(redis)) < workers:
            await asyncio.sleep(SAMPLE_S)


async def _staged(redis: Redis, rows: int) -> Submission:
    """A job that nobody sees before it is committed: what a fleet does is measured without what a producer does."""
    staged = await Submission.begin(redis, model=TARGET, name="bench")
    for index in range(rows):
        body = {"prompt": f"Question {index}: what is the answer to it?", "max_tokens": 16}
        row = Row(index, index + 1, f"row-{index + 1}", COMPLETIONS_URL, body)
        await staged.add(row, row.to_json())
    return staged


async def _watched(redis: Redis, staged: Submission) -> tuple[JobStatus, list[tuple[float, int]]]:
    """Start the job and see it end: its last status, and rows done by time."""
    job_id = await staged.commit(staged.job_id, insist=True)
    samples = []
    while True:
        seen = await jobs.status(redis, job_id)
        assert seen is not None
        samples.append((time.monotonic(), seen.done))
        if seen.state.ended:
            assert seen.done == seen.rows
            assert not seen.failed
            return seen, samples
        await asyncio.sleep(SAMPLE_S)


def _steady(samples: list[tuple[float, int]], rows: int) -> float:
    inner = [(at, done) for at, done in samples if 0.1 * rows <= done <= 0.9 * rows]
    if len(inner) < 2:
        return float("nan")
    (first_at, first), (last_at, last) = inner[0], inner[-1]
    return (last - first) / (last_at - first_at)


@contextmanager
def _workers(count: int, max_num_seqs: int, url: str, folder: Path) -> Iterator[list[int]]:
    """Their process ids; all are ended with the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MINEDRAFT_")}
    flags = ("--engine", "fake", "--metrics-port", "0", "--max-num-seqs", str(max_num_seqs), "--redis", url)
    running: list[subprocess.Popen[bytes]] = []
    with (folder / "workers.log").open("wb") as log:
        try:
            for _ in range(count):
                running.append(
                    subprocess.Popen([WORKER, "run", *flags], env=environment, cwd=folder, stdout=log, stderr=log)
                )
            yield [process.pid for process in running]
        finally:
            for process in running:
                process.terminate()
            for process in running:
                _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"bench-fleet: worker {process.pid} does not end; it is killed\n")
        process.kill()
        process.wait()


@contextmanager
def _counted(url: str) -> Iterator[Counter[str]]:
    """Counts what clients send while the block runs; its last command must be an ECHO of `_END`.

    The server's own counters would count what scripts call inside, too.
    """
    sent: Counter[str] = Counter()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(url.removeprefix("unix://"))
        connection.sendall(b"MONITOR\r\n")
        lines = connection.makefile("rb")
        assert lines.readline() == b"+OK\r\n"
        reader = threading.Thread(target=_count, args=(lines, sent))
        reader.start()
        yield sent
        reader.join()


def _count(lines: Iterator[bytes], sent: Counter[str]) -> None:
    names = {scripts._source(name)[1].encode(): name for name in _script_names()}
    for line in lines:
        if _END.encode() in line:
            return
        found = _COMMAND.match(line)
        if found and found[1] != b"lua":
            command = found[2].decode(errors="replace").upper()
            name = names.get(found[3], command) if command == "EVALSHA" else command
            if name not in _OWN:
                sent[name] += 1


def _script_names() -> list[str]:
    folder = Path(str(scripts.__file__)).parent / "lua"
    return [path.stem for path in folder.glob("*.lua") if path.stem != "schema"]


def _cpu_seconds(pids: list[int]) -> float:
    """Processor time of these processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
