import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis import Redis
from redis_fixture import every_binary, running_redis

from producer.server.binary import inspect_binary
from producer.server.embedded import EmbeddedRedis
from producer.server.errors import ServerError

START = "import sys; from pathlib import Path; from producer.server.embedded import EmbeddedRedis; print({})"


@pytest.fixture(params=every_binary())
def binary(request) -> Path:
    return request.param


@pytest.fixture
def server(binary, tmp_path) -> Iterator[EmbeddedRedis]:
    """A server that does not run yet; whatever runs at the end is ended."""
    server = EmbeddedRedis(tmp_path / "data", binary=binary)
    yield server
    server.stop()


@pytest.fixture
def client(server) -> Iterator[Redis]:
    with Redis.from_url(server.url, decode_responses=True) as client:
        yield client


def kill(server: EmbeddedRedis) -> None:
    pid = server.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not server.status().running)


def until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def starter(server: EmbeddedRedis, binary: Path) -> subprocess.Popen:
    """Another program that starts the same server and prints what `start` returned."""
    code = START.format("EmbeddedRedis(Path(sys.argv[1]), binary=Path(sys.argv[2])).start()")
    command = [sys.executable, "-c", code, server.data_dir, binary]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_start_and_stop_say_whether_they_did_something(server):
    assert not server.stop()
    assert not server.status().running
    assert not server.data_dir.exists()
    assert server.start()
    assert not server.start()
    assert server.status().running
    assert server.stop()
    assert not server.stop()
    assert not server.status().running


def test_status(server, client, binary):
    server.start()
    client.mset({"a": 1, "b": 2})
    status = server.status()
    assert (status.running, status.keys, status.url) == (True, 2, server.url)
    assert status.pid == int((server.data_dir / "redis.pid").read_text())
    assert status.version == ".".join(map(str, inspect_binary(binary).version))
    assert status.binary is not None
    assert status.binary.is_file()
    assert status.memory_bytes is not None
    assert status.memory_bytes > 100_000
    assert status.uptime_s is not None
    assert status.log.is_file()
    server.stop()
    status = server.status()
    assert (status.running, status.pid, status.version, status.keys) == (False, None, None, None)


def test_it_is_durable_private_and_never_evicts(server, client):
    server.start()
    config = client.config_get("*")
    assert {name: config[name] for name in ("appendonly", "appendfsync", "maxmemory-policy", "save", "port")} == {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
        "port": "0",
    }
    assert stat.S_IMODE(server.data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((server.data_dir / "redis.sock").stat().st_mode) == 0o700


def test_data_outlives_a_stop_and_a_kill(server, client):
    server.start()
    client.set("before stop", 1)
    server.stop()
    server.start()
    client.set("before kill", 1)
    kill(server)
    assert (server.data_dir / "redis.sock").exists()  # what a killed server leaves behind
    assert (server.data_dir / "redis.pid").exists()
    assert server.start()
    assert set(client.keys()) == {"before stop", "before kill"}


def test_it_outlives_the_program_that_started_it(server, client, binary):
    program = starter(server, binary)
    assert program.communicate()[0] == "True\n"
    for end in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        with pytest.raises(ProcessLookupError):  # nothing is left of its session, as when its terminal closes
            os.killpg(program.pid, end)
    assert client.ping()


def test_many_programs_start_one_server(server, binary):
    programs = [starter(server, binary) for _ in range(6)]
    said = [program.communicate()[0].strip() for program in programs]
    assert sorted(said) == ["False"] * 5 + ["True"]
    assert server.log.read_text().count("eady to accept connections") == 1


def test_many_threads_start_one_server_again_and_again(server):
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            said = threads.map(lambda _: server.start(), range(4))
            assert sorted(said) == [False, False, False, True]
            server.stop()


def test_a_stop_ends_one_server_and_not_the_next(server, client):
    server.start()
    with ThreadPoolExecutor(1) as threads:
        for turn in range(10):
            client.set("turn", turn)
            stopped = threads.submit(server.stop)
            while not server.start():  # until it no longer meets the old one
                pass
            assert stopped.result()
            assert client.get("turn") == str(turn)


def test_a_refusal_to_stop_is_reported(server, client, tmp_path):
    server.start()
    client.set("key", "x")
    client.config_set("save", "1 1")  # now ending means writing a dump first
    (server.data_dir / "dump.rdb").mkdir()
    with pytest.raises(ServerError, match=r"does not stop: ERR .*SHUTDOWN.*\(log: "):
        server.stop()
    (server.data_dir / "dump.rdb").rmdir()
    assert client.get("key") == "x"


def test_a_pid_file_that_names_a_stranger_harms_nobody(server):
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            server.data_dir.mkdir()
            (server.data_dir / "redis.pid").write_text(f"{stranger.pid}\n")
            (server.data_dir / "redis.sock").touch()
            (server.data_dir / "server.lock").touch()
            assert not server.stop()
            assert server.start()
            assert server.status().pid != stranger.pid
            (server.data_dir / "redis.pid").write_text(f"{stranger.pid}\n")
            assert server.stop()
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_no_second_server_starts_on_data_whose_server_lost_its_socket(server):
    server.start()
    pid = server.status().pid
    assert pid is not None
    (server.data_dir / "redis.sock").unlink()
    with pytest.raises(ServerError, match=r"does not answer after 0\.1 s; its log is"):
        server.start(timeout_s=0.1)
    with pytest.raises(ServerError, match=r"is not gone after 0\.1 s"):
        server.stop(timeout_s=0.1)
    assert (server.status().running, server.status().pid) == (True, None)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not server.status().running)
    assert server.start()


def test_a_frozen_server_is_reported_and_not_harmed(server):
    server.start()
    pid = server.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ServerError, match="does not stop: timed out"):
            server.stop(timeout_s=0.2)
        with pytest.raises(ServerError, match="does not answer"):
            server.start(timeout_s=0.1)
        assert server.status().running
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: not server.status().running)  # awake again, it does what it was told


@pytest.mark.parametrize("name", ["with space", 'it\'s "quoted" é #?%20', "x" * 200])
def test_any_directory_will_do(binary, tmp_path, name):
    with running_redis(tmp_path / name / "redis", binary=binary) as server:
        with Redis.from_url(server.url, decode_responses=True) as client:
            client.set("key", name)
            assert client.config_get("dir")["dir"] == str(tmp_path / name / "redis")
        server.stop()
        server.start()
        with Redis.from_url(server.url, decode_responses=True) as client:
            assert client.get("key") == name
        socket = Path(server._socket)
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    if socket.parent != server.data_dir:
        socket.parent.rmdir()


def test_two_spellings_of_a_directory_are_one_server(server, binary, monkeypatch):
    server.start()
    (server.data_dir.parent / "link").symlink_to(server.data_dir)
    assert not EmbeddedRedis(server.data_dir.parent / "link", binary=binary).start()
    monkeypatch.chdir(server.data_dir.parent)
    assert not EmbeddedRedis(Path("data"), binary=binary).start()


def test_damaged_data_are_reported_with_the_servers_own_words(server, client):
    server.start()
    client.set("key", "x" * 100)
    server.stop()
    [file] = [path for path in server.data_dir.rglob("appendonly*") if path.suffix in (".aof",) and path.stat().st_size]
    file.write_bytes(b"*3\r\n$3\r\nSET\r\nnonsense" + file.read_bytes())
    with pytest.raises(ServerError, match="did not start: Bad file format") as caught:
        server.start()
    assert "\n" not in str(caught.value)
    assert str(server.log) in str(caught.value)
    assert not server.status().running


def test_refused_options_are_reported(server, monkeypatch):
    monkeypatch.setattr(EmbeddedRedis, "_options", lambda _: ["--no-such-option", "1"])
    with pytest.raises(ServerError, match="did not start: Bad directive"):
        server.start()


def test_data_of_a_newer_server_are_not_hidden_by_an_older_one(server, binary):
    (server.data_dir / "appendonlydir").mkdir(parents=True)
    if inspect_binary(binary).version >= (7, 0, 0):
        assert server.start()
    else:
        with pytest.raises(ServerError, match=r"was written by Redis 7 or newer, and .* is 6\.2"):
            server.start()


def test_a_directory_that_cannot_be_used(binary, tmp_path):
    (tmp_path / "file").touch()
    server = EmbeddedRedis(tmp_path / "file" / "data", binary=binary)
    with pytest.raises(ServerError, match=r"cannot use the directory .*: Not a directory"):
        server.start()


def test_a_missing_program(tmp_path):
    with pytest.raises(ServerError, match="does not run"):
        EmbeddedRedis(tmp_path, binary=tmp_path / "no-server").start()
    assert not EmbeddedRedis(tmp_path).status().running


def test_the_default_is_in_the_users_data_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("MINEDRAFT_DATA_DIR", str(tmp_path))
    assert EmbeddedRedis().data_dir == tmp_path / "redis"


def test_the_shared_fixture_is_a_server_emptied_for_each_test(redis_url):
    with Redis.from_url(redis_url, decode_responses=True) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


test_the_shared_fixture_is_empty_again = test_the_shared_fixture_is_a_server_emptied_for_each_test
