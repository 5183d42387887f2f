"""One storm: jobs are submitted as the queue runs low, faults come as rows end, and the end is awaited and audited."""

import asyncio
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from chaos.storm.audit import Audit, Job, audit
from chaos.storm.commands import Commands
from chaos.storm.consumers import Consumers
from chaos.storm.faults import Faults
from chaos.storm.fleet import Fleet
from chaos.storm.measure import Measures, Meter
from chaos.storm.oracle import fake_oracle, read_input
from chaos.storm.producers import Producers
from chaos.storm.progress import Progress
from chaos.storm.purged import audit_purge, snapshot
from chaos.storm.rows import FAIL_WORD, write_job
from chaos.storm.schedule import Fault, Kind
from chaos.storm.server import Server
from leftovers import MARK, Leftovers
from redis import Redis

MODEL = "storm"
_QUEUE = f"minedraft:tokens:{MODEL}"
_TOKENS = 12

#: How the results of the jobs are fetched, in turns.
_HOW: tuple[Literal["input", "consume", "done"], ...] = ("input", "consume", "done", "consume")

#: How long nothing may end while rows wait and nothing is broken any more (seconds).
_STALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a storm.

    Attributes:
        rows_at_once: of each worker.
        seconds_per_row: what the fake engine takes for one.
        say: is told what happens.
        least: how many faults of each kind there must have been.
        least_in_all: and of all kinds together.
    """

    rows: int
    jobs: int
    seed: int
    workers: int
    rows_at_once: int
    seconds_per_row: float
    schedule: list[Fault]
    say: Callable[[str], None]
    least: Mapping[Kind, int] = field(default_factory=dict)
    least_in_all: int = 0


@dataclass
class Outcome:
    """What a storm came to."""

    audit: Audit
    measures: Measures
    seconds: float
    done: Counter[str] = field(default_factory=Counter)
    """Faults, by kind."""
    missed: Counter[str] = field(default_factory=Counter)
    """Those that came when no row was left for them, or that found nothing to break."""
    least: Mapping[str, int] = field(default_factory=dict)
    """How many there should have been."""
    least_in_all: int = 0


class Storm:
    """Runs one plan in a folder, with a temporary folder for the programs (both empty, paths short)."""

    def __init__(self, plan: Plan, folder: Path, temp: Path) -> None:
        mark = secrets.token_hex(8)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MINEDRAFT_")}
        environment = kept | {MARK: mark, "TMPDIR": str(temp), "MINEDRAFT_DATA_DIR": str(folder / "data")}
        engine = f"--seconds-per-row {plan.seconds_per_row} --tokens-per-row {_TOKENS} --fail-on {FAIL_WORD}"
        flags = ["--engine", "fake", f"--engine-args={engine}", "--max-num-seqs", str(plan.rows_at_once)]
        flags += ["--served-model-name", MODEL]
        self._oracle = fake_oracle(FAIL_WORD, _TOKENS)
        self._plan = plan
        self._folder = folder
        self._server = Server(folder / "redis", environment)
        self._fleet = Fleet(folder, environment, self._server.socket, flags, plan.workers)
        self._producers = Producers(self._server, environment)
        self._progress = Progress(self._server.client, plan.rows)
        self._meter = Meter(self._server.client, self._progress, self._fleet)
        self._consumers = Consumers(self._producers)
        self._commands = Commands(self._producers, self._server.client, self._progress, folder, plan.seed)
        self._faults = Faults(
            *(self._server, self._fleet, self._progress, self._meter, self._consumers, self._commands),
            queue=_QUEUE,
            kill_producer=self._submit_next_and_kill,
        )
        self._leftovers = Leftovers(mark, folder, temp)
        self._inputs = [folder / f"job-{number:02}.jsonl" for number in range(plan.jobs)]
        self._jobs: dict[Path, Job] = {}
        self._submitting = asyncio.Lock()

    async def run(self) -> Outcome:
        """From the first row to the last finding; whatever happens, nothing is left running."""
        began = time.monotonic()
        for number, path in enumerate(self._inputs):
            write_job(path, self._plan.seed * 1000 + number, self._rows_of(number))
        follower = asyncio.create_task(self._progress.follow())
        try:
            with self._leftovers.followed():
                await self._server.start()
                await self._fleet.start()
                outcome = await self._watched(follower)
                await self._consumers.ended()
                await self._retry()
                await self._server.settle()
                await self._results()
                await self._fleet.close()
                outcome.audit = await asyncio.to_thread(self._audit)
                await self._purge(outcome.audit)
                await self._server.stop()
        finally:
            self._consumers.close()
            follower.cancel()
            await self._server.close()
            left = await asyncio.to_thread(self._leftovers.end)
        for what in [*left, *self._fleet.findings, *self._producers.findings]:
            outcome.audit.find("others", what)
        outcome.measures = self._meter.measures
        outcome.seconds = time.monotonic() - began
        return outcome

    def _rows_of(self, number: int) -> int:
        rows, rest = divmod(self._plan.rows, self._plan.jobs)
        return rows + (number < rest)

    async def _watched(self, follower: asyncio.Task[None]) -> Outcome:
        """The weather; ends with the follower's error if that fails."""
        weather = asyncio.create_task(self._weather())
        try:
            await asyncio.wait([weather, follower], return_when=asyncio.FIRST_COMPLETED)
            if follower.done():
                follower.result()
            return weather.result()
        finally:
            weather.cancel()

    async def _weather(self) -> Outcome:
        """All jobs and all faults, until every row has ended or nothing goes on any more."""
        outcome = Outcome(Audit(), Measures(), 0.0, least=self._plan.least, least_in_all=self._plan.least_in_all)
        submitter = asyncio.create_task(self._submit_all())
        try:
            for number, fault in enumerate(self._plan.schedule, 1):
                while self._progress.share < fault.at and not self._stalled():
                    self._fleet.check()
                    await asyncio.sleep(0.05)
                while not self._progress.backlog and not submitter.done():
                    await asyncio.sleep(0.05)
                if not self._progress.backlog:
                    outcome.missed[fault.kind] += 1
                    continue
                self._plan.say(
                    f"{number}/{len(self._plan.schedule)} {self._progress.done} rows, backlog {self._progress.backlog}:"
                    f" {fault.kind} {fault.way}"
                )
                happened = await self._faults.do(fault)
                (outcome.done if happened else outcome.missed)[fault.kind] += 1
            await submitter
            await self._fleet.settle()
            self._progress.gained = time.monotonic()
            while self._progress.backlog and not self._stalled():
                self._fleet.check()
                await asyncio.sleep(0.1)
        finally:
            submitter.cancel()
        return outcome

    def _stalled(self) -> bool:
        return time.monotonic() - self._progress.gained > _STALL_SECONDS + 60 * (not self._fleet.at_work)

    async def _submit_all(self) -> None:
        """Keep a job's rows waiting, no more: faults must find work until the end."""
        while len(self._jobs) < len(self._inputs):
            if self._progress.backlog < self._rows_of(0):
                await self._submit_next()
            await asyncio.sleep(0.1)

    async def _submit_next(self, killed_at: float | None = None) -> bool:
        """Tells whether a producer was killed before, with rows staged."""
        killed = False
        async with self._submitting:
            # When all are submitted, the last one again: it must be found.
            path = next((path for path in self._inputs if path not in self._jobs), self._inputs[-1])
            if killed_at is not None:
                killed = await self._producers.killed(path, killed_at)
            job = await self._producers.submit(path)
            number = self._inputs.index(path)
            if path not in self._jobs:
                made = Job(job, path, path.with_suffix(".results"), _HOW[number % len(_HOW)])
                self._jobs[path] = made
                if made.how == "consume":
                    self._consumers.start(job, made.results)
            elif self._jobs[path].job_id != job:
                self._producers.findings.append(f"{path.name} became job {self._jobs[path].job_id} and job {job}")
            self._progress.add(job, self._rows_of(number))
        return killed

    async def _submit_next_and_kill(self, part: float) -> bool:
        return await self._submit_next(killed_at=part)

    async def _retry(self) -> None:
        """Failed rows run again, and fail again: everything must be as if nobody had retried."""
        job = self._fetched("done")
        asked = await asyncio.to_thread(lambda: list(read_input(job.input)))
        failures = sum(row.body is not None and self._oracle(row) is None for row in asked)
        await self._commands.retry(job.job_id, failures)

    def _fetched(self, how: str) -> Job:
        """The first job whose results are fetched so; the very first one when there is none."""
        jobs = list(self._jobs.values())
        return next((job for job in jobs if job.how == how), jobs[0])

    async def _results(self) -> None:
        for job in [*self._jobs.values(), *self._commands.jobs]:
            if job.how != "consume":
                await self._producers.results(job.job_id, job.results, job.how)

    def _audit(self) -> Audit:
        with self._redis() as redis:
            return audit(redis, [*self._jobs.values(), *self._commands.jobs], self._oracle)

    async def _purge(self, made: Audit) -> None:
        job = self._fetched("input").job_id
        with self._redis() as redis:
            before = await asyncio.to_thread(snapshot, redis, job)
            await self._commands.purge(job)
            await asyncio.to_thread(audit_purge, made, redis, job, before)

    def _redis(self) -> "Redis":
        return Redis(unix_socket_path=str(self._server.socket), decode_responses=True)


def run_storm(plan: Plan, folder: Path, temp: Path) -> Outcome:
    """Run one storm to its end."""

    async def run() -> Any:
        return await Storm(plan, folder, temp).run()

    result: Outcome = asyncio.run(run())
    return result
