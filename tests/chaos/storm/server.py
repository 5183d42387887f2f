"""A Redis server that can be killed, starved of disk and of memory."""

import asyncio
import resource
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
from redis.asyncio import Redis
from redis.exceptions import RedisError

from producer.server.binary import find_binary

#: How long the queue's own keys may take to go when everything has ended (seconds). Marks of arq's live for ten.
_SETTLE_SECONDS = 30.0


class Server:
    """Runs in the foreground of its own process, on a Unix socket, with the options of the embedded one."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir()
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.client: Redis = Redis.from_url(self.url, decode_responses=True, socket_timeout=5.0)

    async def start(self) -> None:
        """Returns when it has read its data and answers."""
        options = {
            **{"port": "0", "unixsocket": str(self.socket), "dir": str(self._folder), "save": "", "appendonly": "yes"},
            **{"maxmemory-policy": "noeviction", "logfile": str(self._folder / "redis.log")},
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = self._launch([str(find_binary().path), *words])
        while not await self._answers():
            assert self._process.poll() is None, f"Redis did not start: {self._folder}/redis.log"
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """SIGTERM: everything is on the disk."""
        await self._end(kill=False)

    async def kill(self) -> None:
        """kill -9."""
        await self._end(kill=True)

    async def close(self) -> None:
        """It runs no more, whatever became of the storm."""
        if self._process is not None and self._process.poll() is None:
            await self.kill()
        with suppress(RedisError, OSError):
            await self.client.aclose()

    @asynccontextmanager
    async def disk_full(self) -> AsyncIterator[None]:
        """No file of the server can grow."""
        assert self._process is not None
        process = psutil.Process(self._process.pid)
        process.rlimit(psutil.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            while (await self.client.info("persistence"))["aof_last_write_status"] != "ok":
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def out_of_memory(self) -> AsyncIterator[None]:
        """It may have less memory than it uses."""
        await self.client.config_set("maxmemory", "1mb")
        try:
            yield
        finally:
            await self.client.config_set("maxmemory", "0")

    async def settle(self) -> None:
        """Let idle workers run the tokens that are left, and marks run out."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            left = [key async for key in self.client.scan_iter("arq:*", count=1000)]
            if not left and not [key async for key in self.client.scan_iter("minedraft:tokens:*", count=1000)]:
                return
            await asyncio.sleep(0.5)

    def _launch(self, command: list[str]) -> "subprocess.Popen[bytes]":
        # Not restored: the signal of a file that grows beyond its limit stays ignored, as Python has it.
        return subprocess.Popen(command, env=self._environment, restore_signals=False, stdout=subprocess.DEVNULL)

    async def _end(self, *, kill: bool) -> None:
        assert self._process is not None
        (self._process.kill if kill else self._process.terminate)()
        await asyncio.to_thread(self._process.wait)

    async def _answers(self) -> bool:
        try:
            return bool(await self.client.ping())
        except (RedisError, OSError):
            return False
