"""The producer's commands: submitted until it works, killed halfway, fetched."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from chaos.storm.server import Server
from redis.exceptions import RedisError

_PRODUCER = Path(sys.executable).parent / "producer"

#: What a producer may exit with while Redis is broken: refused, not reached.
_WEATHER = (2, 3)

#: Rows without end for a producer that is killed before it: it sends what it has read only when there is a megabyte.
_MORE = b'\n{"prompt": "' + b"x" * 1000 + b'"}'
_MORE_TIMES = 1500


class Producers:
    """`findings` says what no producer should have said."""

    def __init__(self, server: Server, environment: dict[str, str]) -> None:
        self.findings: list[str] = []
        self._server = server
        self._environment = environment

    async def submit(self, path: Path, *flags: str) -> str:
        """Submit a file, again and again until it is a job; the job's id."""
        while True:
            code, out, _ = await self.run("submit", str(path), "--json", *flags)
            if code == 0:
                return str(json.loads(out)["job_id"])
            await asyncio.sleep(1)

    async def killed(self, path: Path, share: float) -> bool:
        """kill -9 of a producer that has read so much of the file from a pipe; what it staged then is a day old.

        True if it had staged rows.
        """
        before = await self._staged()
        process = await self.launch("submit", "-", "--json", stdin=PIPE)
        assert process.stdin is not None
        text = await asyncio.to_thread(path.read_bytes)
        process.stdin.write(text[: int(len(text) * share)] + _MORE * _MORE_TIMES)
        for _ in range(100):
            await asyncio.sleep(0.1)
            if any(rows for job, rows in (await self._staged()).items() if job not in before):
                break
        await asyncio.sleep(0.2)
        process.kill()
        await process.communicate()
        left = {job: rows for job, rows in (await self._staged()).items() if job not in before}
        for job in left:
            await self._server.client.zadd("minedraft:staging", {job: 0}, xx=True)
        return any(left.values())

    async def results(self, job: str, path: Path, order: str = "input") -> None:
        """The results file of a job."""
        code, _, said = await self.run("results", job, "-o", str(path), "--order", order)
        if code != 0:
            self.findings.append(f"producer results {job}: {said}")

    async def _staged(self) -> dict[str, int]:
        """Jobs in submission, and how many rows each has so far."""
        try:
            jobs = list(await self._server.client.zrange("minedraft:staging", 0, -1))
            return {job: int(await self._server.client.hget(f"minedraft:job:{job}", "rows") or 0) for job in jobs}
        except (RedisError, OSError):
            return {}

    async def run(self, *words: str, allowed: str = "\0") -> tuple[int, str, str]:
        """One command to its end: exit code, standard output and error.

        Args:
            words: the command.
            allowed: what it may say when it fails, if Redis is not the reason.
        """
        process = await self.launch(*words)
        out, err = (part.decode(errors="replace") for part in await process.communicate())
        code = process.returncode or 0
        self.judge(words[0], code, err, allowed)
        return code, out, err

    def judge(self, command: str, code: int, err: str, allowed: str = "\0") -> None:
        """Find a traceback, and a failure that is not Redis's."""
        weather = code in _WEATHER and ("Redis" in err or allowed in err)
        if "Traceback" in err or (code and not weather):
            self.findings.append(f"producer {command} exited with {code}: {err.strip()[-300:]}")

    async def launch(self, *words: str, stdin: int | None = None) -> Process:
        """A command that runs."""
        return await asyncio.create_subprocess_exec(
            *(_PRODUCER, *words, "--redis", self._server.url),
            env=self._environment,
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
        )
