"""Starts, stops and asks this user's own Redis server: private Unix socket, append-only file, no network."""

import os
import re
import socket
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from redis import Redis, exceptions

from producer.server import lock, place
from producer.server.binary import Binary, find_binary, inspect_binary
from producer.server.errors import ServerError

__all__ = ["EmbeddedRedis", "ServerError", "ServerStatus"]

_POLL_S = 0.02
_ASK_TIMEOUT_S = 2.0
_LAUNCH_TIMEOUT_S = 30.0
_LOG_TAIL_BYTES = 4096
# "1234:M 01 Jan 2026 12:00:00.000 # " in front of what the server says in its log.
_LOG_PREFIX = re.compile(r"^\d+:\w \d+ \w+ \d+ [\d:.]+ \S ")
_APPEND_DIR = "appendonlydir"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is known about the embedded server; None where it does not run or does not answer.

    Attributes:
        running: a server process lives.
        url: where it listens, for redis-py.
        data_dir: its data, lock, pid and log files.
        log: its log file.
        pid: its process id.
        version: its own version (Valkey's where it is one).
        binary: the program that it runs.
        memory_bytes: memory that its data takes.
        keys: how many keys it holds.
        uptime_s: seconds since it started.
    """

    running: bool
    url: str
    data_dir: Path
    log: Path
    pid: int | None = None
    version: str | None = None
    binary: Path | None = None
    memory_bytes: int | None = None
    keys: int | None = None
    uptime_s: int | None = None


class EmbeddedRedis:
    """The Redis server of one data directory: at most one runs, whoever starts it, and it outlives its starter.

    Everything that is written is in the append-only file within a second, and survives kill -9 of the server.
    No method ever signals a process: the server is told to end through its socket, so a stale pid file can harm nobody.
    """

    def __init__(self, data_dir: Path | None = None, *, binary: Path | None = None) -> None:
        """Name the server; nothing is touched yet.

        Args:
            data_dir: where its data is; by default `place.default_data_dir()`.
            binary: the server program; by default the first that `find_binary` finds.
        """
        self.data_dir = (data_dir or place.default_data_dir()).expanduser().resolve()
        self.log = self.data_dir / "redis.log"
        self._binary = binary
        self._lock = self.data_dir / "server.lock"
        self._socket = place.socket_path(self.data_dir)

    @property
    def url(self) -> str:
        """Where it listens, or would listen, for redis-py (`unix://...`, percent-encoded).

        Raises:
            ServerError: another user could have put the socket there.
        """
        place.refuse_shared(self._socket.parent)
        return f"unix://{quote(str(self._socket))}"

    def start(self, *, timeout_s: float = 60.0) -> bool:
        """Start it unless it runs, and wait until it answers. False if it ran before.

        Safe to call from many processes at once: one of them starts it, all of them wait.

        Raises:
            ServerError: it cannot be started, or does not answer in time.
        """
        place.make_private(self.data_dir)
        place.make_private(self._socket.parent)
        deadline = time.monotonic() + timeout_s
        launched_at: int | None = None  # the log's size at that moment
        while True:
            if (held := self._acquire()) is not None:
                try:
                    if launched_at is not None:
                        raise ServerError(f"the Redis server did not start: {self._log_end(launched_at)}")
                    launched_at = self.log.stat().st_size if self.log.exists() else 0
                    self._launch(held)
                finally:
                    os.close(held)
            if self._answers():
                return launched_at is not None
            self._wait(deadline, f"does not answer after {timeout_s:g} s")

    def stop(self, *, timeout_s: float = 60.0) -> bool:
        """End it, with everything written to disk, and wait until it is gone. False if it did not run.

        Raises:
            ServerError: it refuses, or is not gone in time.
        """
        if not self._held():
            return False
        late = f"is not gone after {timeout_s:g} s"
        deadline = time.monotonic() + timeout_s
        while not self._shut_down(timeout_s) and self._held():
            self._wait(deadline, late)
        # Told once, so that a server that somebody starts from now on is left alone: it is what answers.
        while self._held() and not self._answers():
            self._wait(deadline, late)
        return True

    def status(self) -> ServerStatus:
        """What is known about it now.

        Raises:
            ServerError: its data directory cannot be read.
        """
        status = ServerStatus(self._held(), self.url, self.data_dir, self.log)
        if not status.running:
            return status
        try:
            with self._client(_ASK_TIMEOUT_S) as client:
                info: dict[str, Any] = client.info()
                keys: int = client.dbsize()
        except exceptions.RedisError:
            return status
        return replace(
            status,
            pid=info["process_id"],
            version=str(info.get("valkey_version") or info["redis_version"]),
            binary=Path(info["executable"]),
            memory_bytes=info["used_memory"],
            keys=keys,
            uptime_s=info["uptime_in_seconds"],
        )

    def _launch(self, held: int) -> None:
        """Run the server program, which inherits the lock and returns when it has gone into the background."""
        binary = inspect_binary(self._binary) if self._binary else find_binary()
        self._refuse_newer_data(binary)
        try:
            ended = subprocess.run(
                [binary.path, *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=[held],
                timeout=_LAUNCH_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerError(f"{binary.path} does not run: {error}") from None
        if ended.returncode != 0:
            said = ended.stdout.strip().rpartition("\n")[2] or f"it ended with exit code {ended.returncode}"
            raise ServerError(f"the Redis server did not start: {said}")

    def _options(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self.data_dir),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",  # the append-only file is the one copy on disk
            "maxmemory-policy": "noeviction",
            "daemonize": "yes",
            "pidfile": str(self.data_dir / "redis.pid"),
            "logfile": str(self.log),
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _refuse_newer_data(self, binary: Binary) -> None:
        # Redis 7 moved the append-only file into a directory; an older server would not see it and start empty.
        if binary.version < (7, 0, 0) and (self.data_dir / _APPEND_DIR).exists():
            version = ".".join(map(str, binary.version))
            raise ServerError(
                f"the data in {self.data_dir} was written by Redis 7 or newer, and {binary.path} is {version}:"
                " install redis-server 7 or newer"
            )

    def _shut_down(self, timeout_s: float) -> bool:
        """Tell the server to end, and wait until it has closed the connection. False if it does not listen (yet)."""
        place.refuse_shared(self._socket.parent)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            try:
                connection.connect(str(self._socket))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            try:
                connection.sendall(b"SHUTDOWN\r\n")
                refusal = connection.recv(_LOG_TAIL_BYTES)
            except ConnectionError:
                return True
            except OSError as error:
                raise ServerError(f"the Redis server of {self.data_dir} does not stop: {error}") from None
        if refusal:
            said = refusal.decode(errors="replace").strip().removeprefix("-")
            raise ServerError(f"the Redis server of {self.data_dir} does not stop: {said} (log: {self.log})")
        return True

    def _answers(self) -> bool:
        try:
            with self._client(_ASK_TIMEOUT_S) as client:
                client.ping()
        except (exceptions.ConnectionError, exceptions.TimeoutError):  # still loading is a ConnectionError, too
            return False
        except exceptions.ResponseError:
            return True  # busy, or its disk is full: it says so to whoever uses it
        return True

    def _client(self, timeout_s: float) -> Redis:
        client: Redis = Redis.from_url(self.url, socket_timeout=timeout_s)
        return client

    def _wait(self, deadline: float, complaint: str) -> None:
        if time.monotonic() > deadline:
            raise ServerError(f"the Redis server of {self.data_dir} {complaint}; its log is {self.log}")
        time.sleep(_POLL_S)

    def _acquire(self) -> int | None:
        try:
            return lock.acquire(self._lock)
        except OSError as error:
            raise ServerError(f"cannot lock {self._lock}: {error.strerror}") from None

    def _held(self) -> bool:
        try:
            return lock.is_held(self._lock)
        except OSError as error:
            raise ServerError(f"cannot use the data directory {self.data_dir}: {error.strerror}") from None

    def _log_end(self, start: int) -> str:
        """The last thing that the server said in its log after byte `start`, on one line."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(start, self.log.stat().st_size - _LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").strip().split("\n")
        except OSError:
            lines = []
        said = _LOG_PREFIX.sub("", lines[-1]) if lines and lines[-1] else "it ended at once"
        return f"{said} (log: {self.log})"
