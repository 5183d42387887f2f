"""Redis in trouble under a worker at work, and reached in every way: each row ends once, each outage is told once."""

import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis_servers import Server, failover, needs_redis_server, server, tls_server, wait_for
from shell import Shell, Worker, assert_each_once, lines

ROWS = 60

#: The least that a user of Redis needs for workers and producers.
RIGHTS = "resetkeys ~minedraft:* ~arq:* resetchannels -@all +@read +@write +@connection +@transaction +@scripting +time"
ACL = f"{RIGHTS} -@dangerous +info"


@contextmanager
def shell_at(folder: Path, url: str) -> Iterator[Shell]:
    """A shell whose commands use the Redis at `url`."""
    folder.mkdir()
    shell = Shell(folder)
    shell.environment["MINEDRAFT_REDIS_URL"] = url
    try:
        yield shell
    finally:
        shell.close()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "redis") as made:
        yield made


def slow_worker(shell: Shell) -> Worker:
    """Takes a few seconds for `ROWS`."""
    return shell.fake("--seconds-per-row 0.4", "--max-num-seqs", "6", "--metrics-port", "0")


def begun(shell: Shell, redis: Redis) -> str:
    """A job some of whose rows have ended."""
    job = str(shell.submit(text=lines(ROWS))["job_id"])
    wait_for(lambda: int(redis.hget(f"minedraft:job:{job}", "done")) >= 6)
    return job


def all_once(shell: Shell, job: str) -> None:
    shell.producer("watch", job)
    assert_each_once(shell.results(job), [str(n) for n in range(ROWS)])
    assert shell.status(job)["done"] == ROWS


def await_more(redis: Redis, job: str, done: int) -> float:
    """Wait until rows end again; how long that took."""
    began = time.monotonic()
    wait_for(lambda: int(redis.hget(f"minedraft:job:{job}", "done")) > done, 30)
    return time.monotonic() - began


def told_once(worker: Worker, why: str) -> None:
    """One outage: its beginning and its end, nothing else, no traceback."""
    worker.await_log("Redis is back")
    said = worker.text()
    begins = "Redis is full" if why == "full" else f"Redis is away ({why})"
    assert said.count(begins) == said.count("Redis is back") == 1, said
    assert "Traceback" not in said
    assert worker.metric("minedraft_redis_up") == 1
    assert worker.metric(f'minedraft_redis_errors_total{{kind="{why.replace(" ", "_")}"}}') >= 1
    assert worker.metric("minedraft_results_waiting") == 0


@needs_redis_server
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_gone_and_back(tmp_path: Path, redis: Server, end: str) -> None:
    with shell_at(tmp_path / "user", redis.url) as shell:
        worker = slow_worker(shell)
        job = begun(shell, redis.client())
        getattr(redis, end)()
        worker.await_log("Redis is away")
        wait_for(lambda: worker.metric("minedraft_results_waiting") >= 6)
        assert worker.metric("minedraft_redis_up") == 0
        redis.start()
        assert await_more(redis.client(), job, int(redis.client().hget(f"minedraft:job:{job}", "done"))) < 5
        all_once(shell, job)
        told_once(worker, "unreachable")


@needs_redis_server
def test_silent_for_longer_than_a_lease(tmp_path: Path, redis: Server) -> None:
    """A server (or a network) that swallows everything is given up within seconds; nobody's shards are taken then."""
    with shell_at(tmp_path / "user", redis.url) as shell:
        workers = [slow_worker(shell), slow_worker(shell)]
        job = begun(shell, redis.client())
        redis.signal(signal.SIGSTOP)
        began = time.monotonic()
        for worker in workers:
            worker.await_log("Redis is away", 10)
        assert time.monotonic() - began < 8
        time.sleep(max(0.0, began + 11 - time.monotonic()))  # the leases run out meanwhile
        redis.signal(signal.SIGCONT)
        assert await_more(redis.client(), job, int(redis.client().hget(f"minedraft:job:{job}", "done"))) < 5
        all_once(shell, job)
        for worker in workers:
            told_once(worker, "timeout")


@needs_redis_server
def test_full(tmp_path: Path, redis: Server) -> None:
    with shell_at(tmp_path / "user", redis.url) as shell:
        worker = slow_worker(shell)
        job = begun(shell, redis.client())
        redis.client().config_set("maxmemory", "1mb")
        worker.await_log("Redis is full")
        claimed = worker.metric('minedraft_shard_claims_total{result="claimed"}')
        time.sleep(1)
        assert worker.metric('minedraft_shard_claims_total{result="claimed"}') == claimed
        redis.client().config_set("maxmemory", "0")
        all_once(shell, job)
        told_once(worker, "full")


@needs_redis_server
def test_its_disk_full(tmp_path: Path, redis: Server) -> None:
    with shell_at(tmp_path / "user", redis.url) as shell:
        worker = slow_worker(shell)
        job = begun(shell, redis.client())
        assert redis.process is not None
        soft, hard = resource.prlimit(redis.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(redis.process.pid, resource.RLIMIT_FSIZE, (1, hard))
        worker.await_log("Redis is away (disk)")
        time.sleep(0.5)
        resource.prlimit(redis.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        all_once(shell, job)
        told_once(worker, "disk")


@needs_redis_server
def test_the_primary_dies_and_a_replica_takes_its_place(tmp_path: Path) -> None:
    with failover(tmp_path / "redis") as servers, shell_at(tmp_path / "user", servers.url) as shell:
        worker = slow_worker(shell)
        job = begun(shell, servers.primary.client())
        servers.primary.kill()
        wait_for(lambda: servers.sentinel.primary() == servers.replica.port)
        wait_for(lambda: servers.replica.client().role()[0] == "master")
        all_once(shell, job)
        told_once(worker, "unreachable")


@needs_redis_server
def test_through_tls(tmp_path: Path) -> None:
    with tls_server(tmp_path / "redis") as redis, shell_at(tmp_path / "user", redis.url) as shell:
        shell.fake()
        job = shell.submit(text=lines(ROWS))["job_id"]
        all_once(shell, job)
        for url in (redis.url.replace("authority", "stranger"), redis.url.replace("127.0.0.1", "127.0.0.2")):
            for command in (
                ("producer", "status", "--redis", url),
                ("worker", "run", "--engine", "fake", "--redis", url),
            ):
                refused(shell, *command, code=3, words="cannot be reached")


@needs_redis_server
def test_as_a_user_with_the_least_rights(tmp_path: Path, redis: Server) -> None:
    admin = redis.client()
    admin.execute_command("ACL", "SETUSER", "batch", "on", ">sekret", *ACL.split())
    for name, rights in {"blind": "-evalsha", "reader": "-@write", "elsewhere": "resetkeys ~else:*"}.items():
        admin.execute_command("ACL", "SETUSER", name, "on", ">sekret", *ACL.split(), *rights.split())
    admin.execute_command("ACL", "SETUSER", "default", "off")
    place = redis.url.partition("//")[2]
    with shell_at(tmp_path / "user", f"redis://batch:sekret@{place}") as shell:
        worker = shell.fake()
        job = shell.submit(text=lines(ROWS))["job_id"]
        all_once(shell, job)
        assert "no permissions" not in worker.text()
        for name in ("blind", "reader", "elsewhere"):
            url = f"redis://{name}:sekret@{place}"
            refused(shell, "worker", "run", "--engine", "fake", "--redis", url, code=2, words="may not do")
        for url in (f"redis://batch:guess@{place}", f"redis://{place}"):
            for command in (
                ("producer", "status", "--redis", url),
                ("worker", "run", "--engine", "fake", "--redis", url),
            ):
                refused(shell, *command, code=3, words="refuses the password")


@needs_redis_server
def test_a_server_that_would_evict_rows_is_refused_and_one_that_loads_is_waited_for(tmp_path: Path) -> None:
    with server(tmp_path / "redis", "--key-load-delay", "0") as redis, shell_at(tmp_path / "user", redis.url) as shell:
        redis.client().config_set("maxmemory-policy", "allkeys-lru")
        refused(shell, "worker", "run", "--engine", "fake", code=2, words="maxmemory-policy allkeys-lru")
        with redis.client().pipeline() as pipe:
            for number in range(3000):
                pipe.set(f"key-{number}", "x")
            pipe.execute()
        redis.client().bgrewriteaof()
        wait_for(lambda: not redis.client().info("persistence")["aof_rewrite_in_progress"])
        redis.stop()
        redis.options += ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"]  # microseconds
        redis.launch()
        worker = shell.worker("--engine", "fake")
        worker.ready()
        assert "waiting: Redis is loading" in worker.text()


def refused(shell: Shell, *command: str, code: int, words: str) -> None:
    """The command ends with one line that has `words` in it, and gives no secret away."""
    ended = shell.run(*command)
    said = ended.stderr.strip().split("\n")
    assert ended.returncode == code, ended.stderr
    assert words in said[-1]
    assert "Traceback" not in ended.stderr
    assert "sekret" not in ended.stderr
    assert "guess" not in ended.stderr
