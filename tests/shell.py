"""The programs as a user types them: real processes, a private data directory, everything ended afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parent.parent
VICUNA = ROOT / "ops" / "examples" / "vicuna80.jsonl"


class Worker:
    """A `worker run` process and its log."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log

    def text(self) -> str:
        """What it has logged so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def await_log(self, words: str, seconds: float = 30.0) -> None:
        """Wait until it has said `words`."""
        deadline = time.monotonic() + seconds
        while words not in self.text():
            assert self.process.poll() is None, f"the worker ended: {self.text()}"
            assert time.monotonic() < deadline, f"no {words!r} in: {self.text()}"
            time.sleep(0.05)

    def ready(self, seconds: float = 30.0) -> "Worker":
        """Wait until it serves."""
        self.await_log("serving ", seconds)
        return self

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def terminate(self, seconds: float = 30.0) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def metrics(self) -> str:
        """Its /metrics page."""
        url = self.text().split("metrics: ")[1].split()[0]
        with urllib.request.urlopen(url, timeout=10) as page:
            return page.read().decode()

    def metric(self, sample: str) -> float:
        """One sample of it, by name and labels."""
        for line in self.metrics().splitlines():
            if line.startswith(f"{sample} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no sample {sample}")


class Shell:
    """A user's shell: environment, working directory, and the worker processes started from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MINEDRAFT_")}
        if cache := os.environ.get("MINEDRAFT_CACHE_DIR"):
            kept["MINEDRAFT_CACHE_DIR"] = cache
        self.environment = kept | {"MINEDRAFT_DATA_DIR": str(folder / "data"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.workers: list[Worker] = []

    def run(
        self, *command: str | Path, text: str | bytes | None = None, seconds: float = 120.0
    ) -> "subprocess.CompletedProcess[str]":
        """A command to its end, with what it printed."""
        data = text.encode() if isinstance(text, str) else text
        ended = subprocess.run(
            [str(word) for word in command],
            env=self.environment,
            cwd=self.folder,
            input=data if data is not None else b"",
            capture_output=True,
            timeout=seconds,
            check=False,
        )
        return subprocess.CompletedProcess(
            ended.args, ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace")
        )

    def producer(self, *arguments: str | Path, text: str | bytes | None = None, code: int = 0) -> str:
        """`producer ...`; its standard output. Fails unless it exits with `code`."""
        ended = self.run("producer", *arguments, text=text)
        assert ended.returncode == code, f"{ended.args}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def submit(self, file: str | Path = "-", *arguments: str, text: str | bytes | None = None) -> dict[str, Any]:
        """`producer submit --json`: what it printed."""
        return json.loads(self.producer("submit", file, "--json", *arguments, text=text))

    def status(self, job: str) -> dict[str, Any]:
        """`producer status JOB --json`: what it printed."""
        return json.loads(self.producer("status", job, "--json"))

    def results(self, job: str, *arguments: str, order: str = "input") -> list[dict[str, Any]]:
        """The job's results, read back from the file that `producer results` wrote."""
        path = self.folder / f"{job}.jsonl"
        self.producer("results", job, "-o", path, "--order", order, "--no-manifest", "--overwrite", *arguments)
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]

    def worker(self, *arguments: str) -> Worker:
        """`worker run ...` in the background."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                ["worker", "run", *arguments], env=self.environment, cwd=self.folder, stdout=stream, stderr=stream
            )
        self.workers.append(Worker(process, log))
        return self.workers[-1]

    def fake(self, engine_args: str = "", *arguments: str) -> Worker:
        """A worker with the fake engine, serving."""
        return self.worker("--engine", "fake", f"--engine-args={engine_args}", *arguments).ready()

    def await_done(self, job: str, rows: int, seconds: float = 30.0) -> None:
        """Wait until at least so many rows of the job are in Redis."""
        deadline = time.monotonic() + seconds
        while self.status(job)["done"] < rows:
            assert time.monotonic() < deadline, f"{self.status(job)}"
            time.sleep(0.05)

    def close(self) -> None:
        """End everything started from here."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.process.terminate()
        for worker in self.workers:
            try:
                worker.process.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
        self.run("producer", "redis", "stop")


@contextmanager
def shell_in(folder: Path) -> Iterator[Shell]:
    """A shell whose embedded Redis runs, ended with all its children."""
    shell = Shell(folder)
    try:
        shell.producer("redis", "start")
        yield shell
    finally:
        shell.close()


def chat_line(number: int, tag: str = "") -> str:
    """A short chat row."""
    return json.dumps(
        {"custom_id": f"{tag}{number}", "messages": [{"role": "user", "content": f"{tag} question {number}"}]}
    )


def lines(count: int, tag: str = "") -> str:
    """A file of short chat rows."""
    return "".join(f"{chat_line(number, tag)}\n" for number in range(count))


def assert_each_once(results: list[dict[str, Any]], ids: list[str]) -> None:
    """One line for every id, in this order, each of them answered."""
    assert [line["custom_id"] for line in results] == ids
    assert not [line for line in results if line["error"] or line["response"]["status_code"] != 200]
