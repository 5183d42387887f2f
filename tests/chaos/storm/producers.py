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


class Producers:
    """`findings` says what no producer should have said."""

    def __init__(self, server: Server, environment: dict[str, str]) -> None:
        self.findings: list[str] = []
        self._server = server
        self._environment = environment

    async def submit(self, path: Path, *flags: str) -> str:
        """Submit a file, again and again until it is a job; the job's id."""
        while True:
            code, out, _ = await self._run("submit", str(path), "--json", *flags)
            if code == 0:
                return str(json.loads(out)["job_id"])
            await asyncio.sleep(1)

    async def killed(self, path: Path, share: float) -> None:
        """kill -9 of a producer that has read so much of the file from a pipe; what it staged then is a day old."""
        before = set(await self._staged())
        process = await self._start("submit", "-", "--json", stdin=PIPE)
        assert process.stdin is not None
        text = await asyncio.to_thread(path.read_bytes)
        process.stdin.write(text[: int(len(text) * share)])
        for _ in range(100):
            await asyncio.sleep(0.1)
            if set(await self._staged()) - before:
                break
        await asyncio.sleep(0.2)
        process.kill()
        await process.communicate()
        for job in set(await self._staged()) - before:
            await self._server.client.zadd("minedraft:staging", {job: 0}, xx=True)

    async def results(self, job: str, path: Path) -> None:
        """The results file of a job, in input order."""
        code, _, said = await self._run("results", job, "-o", str(path), "--order", "input")
        if code != 0:
            self.findings.append(f"producer results {job}: {said}")

    async def _staged(self) -> list[str]:
        try:
            return list(await self._server.client.zrange("minedraft:staging", 0, -1))
        except (RedisError, OSError):
            return []

    async def _run(self, *words: str) -> tuple[int, str, str]:
        process = await self._start(*words)
        out, err = (part.decode(errors="replace") for part in await process.communicate())
        code = process.returncode or 0
        if "Traceback" in err or (code and (code not in _WEATHER or "Redis" not in err)):
            self.findings.append(f"producer {words[0]} exited with {code}: {err.strip()[-300:]}")
        return code, out, err

    async def _start(self, *words: str, stdin: int | None = None) -> Process:
        return await asyncio.create_subprocess_exec(
            *(_PRODUCER, *words, "--redis", self._server.url),
            env=self._environment,
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
        )
