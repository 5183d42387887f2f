"""The same with the real engine: a tiny pair in mode psd, each of its processes and the worker killed again and again.

`python -m chaos.storm.real` (with tests/ on PYTHONPATH). The texts must be those of a run that was left in peace,
the first job. Its own are only counted here (`test_two_batches.py` holds such texts against transformers).
"""

import argparse
import asyncio
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from chaos.storm.audit import Audit, Job, audit
from chaos.storm.measure import Measures
from chaos.storm.oracle import Asked
from chaos.storm.producers import Producers
from chaos.storm.report import is_clean, show
from chaos.storm.run import Outcome
from chaos.storm.server import Server
from leftovers import MARK, Leftovers
from ranks import DRAFTER, ENGINE, strike, verifier
from redis import Redis
from rich.console import Console
from shell import BIN, Worker

from worker.lab.pairs import build_pair

#: Rows of a job. Each job sees each victim once: fewer deaths than make a row a poison row.
ROWS = 60
WORKER = "the worker"
VICTIMS = (ENGINE, verifier(0), DRAFTER, WORKER)
_START_SECONDS, _JOB_SECONDS = 240.0, 240.0


def _write_rows(path: Path, dice: random.Random) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(ROWS):
            row = {"prompt": f"{dice.choice(('Say', 'Count'))} {number * number}", "temperature": 0, "ignore_eos": True}
            file.write(json.dumps(row | {"custom_id": str(number), "max_tokens": dice.randint(4, 300)}) + "\n")


class RealStorm:
    """One worker, one file of rows submitted again and again."""

    def __init__(self, seed: int, folder: Path, temp: Path, say: Callable[[str], None]) -> None:
        mark = secrets.token_hex(8)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MINEDRAFT_")}
        self._environment = kept | {MARK: mark, "TMPDIR": str(temp), "MINEDRAFT_DATA_DIR": str(folder / "data")}
        self._dice = random.Random(seed)
        self._folder = folder
        self._say = say
        self._server = Server(folder / "redis", self._environment)
        self._producers = Producers(self._server, self._environment)
        self._leftovers = Leftovers(mark, folder, temp)
        self._input = folder / "rows.jsonl"
        self._workers: list[Worker] = []
        self._jobs: list[Job] = []

    async def run(self, jobs: int) -> Outcome:
        """A job in peace, then `jobs` with kills; whatever happens, nothing is left running."""
        began = time.monotonic()
        outcome = Outcome(Audit(), Measures(), 0.0, least=dict.fromkeys(VICTIMS, jobs))
        _write_rows(self._input, self._dice)
        pair = await asyncio.to_thread(build_pair, self._folder / "pair")
        try:
            with self._leftovers.followed():
                await self._server.start()
                worker = await self._start(pair)
                calm = await self._submit()
                await self._ended(calm)
                for _ in range(jobs):
                    worker = await self._job_with_kills(worker, pair, outcome)
                await self._server.settle()
                code = await asyncio.to_thread(worker.terminate, 60.0)
                for job in self._jobs:
                    await self._producers.results(job.job_id, job.results)
                outcome.audit = await asyncio.to_thread(self._audit)
                if code != 0:
                    outcome.audit.find("others", f"the worker ended with exit code {code} after SIGTERM")
                await self._server.stop()
        finally:
            await self._server.close()
            left = await asyncio.to_thread(self._leftovers.end)
        said = [f"{it.log.name} has a traceback" for it in self._workers if "Traceback" in it.text()]
        for what in [*left, *said, *self._producers.findings]:
            outcome.audit.find("others", what)
        outcome.seconds = time.monotonic() - began
        return outcome

    async def _start(self, pair: tuple[Path, Path]) -> Worker:
        self._workers.append(self._launch(pair))
        return await asyncio.to_thread(self._workers[-1].ready, _START_SECONDS)

    def _launch(self, pair: tuple[Path, Path]) -> Worker:
        target, draft = map(str, pair)
        flags = ["--model", target, "--draft-model", draft, "--served-model-name", "tiny", "--metrics-port", "0"]
        flags += ["--num-speculative-tokens", "3", "--engine-args=--max-model-len 512", "--redis", self._server.url]
        log = self._folder / f"worker-{len(self._workers)}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [BIN / "worker", "run", *flags],
                env=self._environment | {"PATH": f"{BIN}:{os.environ['PATH']}"},
                cwd=self._folder,
                stdout=stream,
                stderr=stream,
            )
        return Worker(process, log)

    async def _submit(self) -> str:
        job = await self._producers.submit(self._input, "--new")
        self._jobs.append(Job(job, self._input, self._folder / f"{job}.results"))
        return job

    async def _job_with_kills(self, worker: Worker, pair: tuple[Path, Path], outcome: Outcome) -> Worker:
        job = await self._submit()
        moments = [turn * ROWS // 5 + self._dice.randrange(1, ROWS // 5) for turn in range(len(VICTIMS))]
        for victim, rows in zip(self._dice.sample(VICTIMS, k=len(VICTIMS)), moments, strict=True):
            await self._ended(job, rows)
            done = await self._done(job)
            if victim == WORKER:
                worker.kill()
                worker = await self._start(pair)
            else:
                await asyncio.to_thread(strike, worker, victim)
            self._say(f"job {job}: {victim} killed at {done} rows")
            (outcome.missed if done == ROWS else outcome.done)[victim] += 1
        await self._ended(job)
        return worker

    async def _ended(self, job: str, rows: int = ROWS) -> None:
        deadline = time.monotonic() + _JOB_SECONDS
        while await self._done(job) < rows:
            assert time.monotonic() < deadline, f"job {job} has {await self._done(job)} rows of {rows}"
            await asyncio.sleep(0.02)

    async def _done(self, job: str) -> int:
        return int(await self._server.client.hget(f"minedraft:job:{job}", "done") or 0)

    def _audit(self) -> Audit:
        lines = map(json.loads, self._jobs[0].results.read_text(encoding="utf-8").split("\n")[:-1])
        calm = {it["custom_id"]: it["response"]["body"]["choices"][0]["text"] for it in lines}

        def in_peace(asked: Asked) -> str:
            return str(calm[asked.custom_id])

        with Redis(unix_socket_path=str(self._server.socket), decode_responses=True) as redis:
            return audit(redis, self._jobs, in_peace)


def main() -> int:
    """One storm from the command line."""
    parser = argparse.ArgumentParser(prog="storm.real", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=3, help="each with a kill of every process")
    parser.add_argument("--keep", type=Path, help="a folder that is kept, with all logs and results")
    asked = parser.parse_args()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to end, it leaves nothing, either
    # Short paths: the names of Unix sockets must be.
    with tempfile.TemporaryDirectory(prefix="storm-") as scratch:
        temp, folder = Path(scratch) / "tmp", asked.keep or Path(scratch) / "run"
        temp.mkdir()
        folder.mkdir(parents=True)

        def say(what: str) -> None:
            print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)

        outcome = asyncio.run(RealStorm(asked.seed, folder, temp, say).run(asked.jobs))
    show(f"storm {asked.seed} with the real engine", outcome, Console(width=120))
    print(f"(the texts of {asked.jobs} jobs were held against those of a job left in peace, which nothing here checks)")
    return 0 if is_clean(outcome) else 1


if __name__ == "__main__":
    sys.exit(main())
