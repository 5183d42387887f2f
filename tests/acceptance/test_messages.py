"""Whatever a user gets wrong: one clear line on standard error, the right exit code, never a traceback."""

import socket
import sys
from pathlib import Path

import pytest
from redis import Redis
from shell import Shell, lines

from producer.server.embedded import EmbeddedRedis
from worker.settings import DEFAULT_METRICS_PORT

NO_REDIS = "redis://127.0.0.1:1/0"

FAKE = ("worker", "run", "--engine", "fake")
PLAIN = ("worker", "run", "--mode", "ar")


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("producer", "submit", "missing.jsonl"), 2, "missing.jsonl"),
        (("producer", "submit", "."), 2, "directory"),
        (("producer", "submit", "empty.jsonl"), 2, "no rows"),
        (("producer", "submit", "blank.jsonl"), 2, "no rows"),
        (("producer", "submit", "broken.jsonl"), 2, "line 1"),
        (("producer", "submit", "twice.jsonl"), 2, "line 2 and again on line 4"),
        (("producer", "submit", "implicit.jsonl"), 2, "line 1 and again on line 2"),
        (("producer", "submit", "good.jsonl", "--redis", NO_REDIS), 3, "cannot be reached"),
        (("producer", "submit", "good.jsonl", "--redis", "http://x"), 2, "not a Redis URL"),
        (("producer", "submit", "utf16.jsonl"), 2, "UTF-16"),
        (("producer", "submit", "array.jsonl"), 2, "one JSON array"),
        (("producer", "submit", "\x1b[31m\n.jsonl"), 2, "?[31m"),
        (("producer", "status", "x", "--redis", "redis://127.0.0.1:1?password=sekret"), 3, "127.0.0.1:1 cannot"),
        (("producer", "status", "x", "--redis", "redi://:sekret@127.0.0.1:1"), 2, "not a Redis URL"),
        (("producer", "status", "x", "--redis", "redis://127.0.0.1:1?foo=sekret"), 2, "not a Redis URL"),
        (("producer", "status", "nosuchjob"), 2, "nosuchjob"),
        (("producer", "watch", "nosuchjob"), 2, "nosuchjob"),
        (("producer", "results", "nosuchjob"), 2, "nosuchjob"),
        (("producer", "status", "x", "--redis", NO_REDIS), 3, "cannot be reached"),
        (("producer", "watch", "x", "--redis", NO_REDIS), 3, "cannot be reached"),
        (("producer", "results", "x", "--redis", NO_REDIS), 3, "cannot be reached"),
        ((*FAKE, "--redis", NO_REDIS), 3, "cannot be reached"),
        ((*FAKE, "--mode", "fast"), 2, "--mode"),
        ((*FAKE, "--max-num-seqs", "0"), 2, "--max-num-seqs"),
        ((*FAKE, "--engine-args=--no-such-flag"), 2, "--no-such-flag"),
        ((*FAKE, "--config", "nosuch.toml"), 2, "nosuch.toml"),
        ((*FAKE, "--metrics-host", "203.0.113.1"), 2, "203.0.113.1"),
        ((*FAKE, "--drafter-cpus", "1-"), 2, "--drafter-cpus"),
        ((*PLAIN, "--model", "/no/such/model"), 2, "/no/such/model"),
        ((*PLAIN, "--model", "no-such-org/no-such-model"), 2, "no-such-org/no-such-model"),
        ((*PLAIN, "--model", "."), 2, "config.json"),
        ((*PLAIN, "--engine-args=--no-such-flag"), 2, "--no-such-flag"),
        (("worker", "run", "--model", "model"), 2, "mode psd needs a draft model: --draft-model (or --mode ar)"),
        (("worker", "run", "--model", "model", "--mode", "sd"), 2, "mode sd needs a draft model: --draft-model"),
        (("worker", "run", "--model", "model", "--draft-model", "/no/such/draft"), 2, "/no/such/draft"),
        (("worker", "run", "--model", "model", "--draft-model", "model", "--drafter-cpus", "9999"), 2, "core 9999"),
        ((*PLAIN, "--model", "model", "--drafter-cpus", "0"), 2, "--drafter-cpus is for --mode psd"),
    ],
    ids=lambda value: "-".join(value[:1] + value[-2:]) if isinstance(value, tuple) else None,
)
def test_one_clear_line(shell: Shell, command: tuple[str, ...], code: int, words: str) -> None:
    folder = shell.folder
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    (folder / "empty.jsonl").touch()
    (folder / "blank.jsonl").write_text("\n  \n\r\n")
    (folder / "broken.jsonl").write_text("{\n[]\n")
    (folder / "utf16.jsonl").write_text('{"prompt": "a"}', encoding="utf-16")
    (folder / "array.jsonl").write_text('[{"prompt": "a"}]')
    (folder / "good.jsonl").write_text(lines(2))
    (folder / "twice.jsonl").write_text(
        '{"prompt":"a"}\n{"prompt":"a","custom_id":"x"}\n\n{"prompt":"b","custom_id":"x"}'
    )
    (folder / "implicit.jsonl").write_text('{"prompt":"a","custom_id":"row-2"}\n{"prompt":"b"}\n')
    ended = shell.run(*command)
    assert ended.returncode == code, ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert words in last
    assert "Traceback" not in ended.stderr
    assert "sekret" not in ended.stderr
    said = [line for line in ended.stderr.splitlines() if " INFO " not in line and " WARNING " not in line]
    assert len(said) == 1, ended.stderr
    assert ended.stdout == ""


def test_a_refused_file_leaves_nothing_behind(shell: Shell) -> None:
    shell.producer("submit", "-", text='{"prompt":"a","custom_id":"x"}\n' * 2, code=2)
    shell.producer("submit", "-", text="{broken\n", code=2)
    assert shell.producer("status", "--json").strip() == "[]"


@pytest.mark.parametrize("command", ["submit", "status", "watch", "results"])
def test_redis_not_running(shell: Shell, command: str) -> None:
    shell.producer("redis", "stop")
    argument = "-" if command == "submit" else "x"
    ended = shell.run("producer", command, argument, text=lines(1))
    assert ended.returncode == 3
    assert len(ended.stderr.splitlines()) == 1
    assert "producer redis start" in ended.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("producer", "submit", "-"), 3),
        (("producer", "status"), 3),
        (("producer", "redis", "start"), 2),
        (("producer", "redis", "stop"), 2),
        (("producer", "redis", "status"), 2),
        (FAKE, 2),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_a_data_directory_that_cannot_be(shell: Shell, command: tuple[str, ...], code: int) -> None:
    (shell.folder / "file").touch()
    shell.environment["MINEDRAFT_DATA_DIR"] = str(shell.folder / "file" / "below")
    ended = shell.run(*command, text=lines(1))
    shell.environment["MINEDRAFT_DATA_DIR"] = str(shell.folder / "data")
    assert ended.returncode == code
    assert len(ended.stderr.splitlines()) == 1
    assert "file" in ended.stderr


def test_a_replica_is_refused(shell: Shell) -> None:
    with Redis.from_url(EmbeddedRedis(shell.folder / "data" / "redis").url) as redis:
        redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    ended = shell.run(*FAKE)
    assert ended.returncode == 2
    assert "replica" in ended.stderr.splitlines()[-1]
    submit = shell.run("producer", "submit", "-", text=lines(1))
    assert submit.returncode == 3
    assert len(submit.stderr.splitlines()) == 1
    assert "EVALSHA" not in submit.stderr


def test_watching_a_job_that_nobody_works_on(shell: Shell) -> None:
    job = shell.submit(text=lines(3))["job_id"]
    ended = shell.run("timeout", "-s", "INT", "12", "producer", "watch", job)
    assert "no worker serves model 'target' (none is running)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_results_keep_links_and_modes(shell: Shell) -> None:
    job = shell.submit(text=lines(1))["job_id"]
    (shell.folder / "link").symlink_to(shell.folder / "real")
    shell.run("bash", "-c", f"umask 077; producer results {job} --partial -o link")
    assert (shell.folder / "link").is_symlink()
    assert (shell.folder / "real").stat().st_mode & 0o777 == 0o600


def test_the_default_metrics_port_moves_and_an_asked_one_does_not(shell: Shell) -> None:
    workers = [shell.fake(), shell.fake()]
    ports = [int(worker.text().split("metrics: http://127.0.0.1:")[1].split("/")[0]) for worker in workers]
    assert ports[0] != ports[1]
    for worker, port in zip(workers, ports, strict=True):  # workers of other tests come and go meanwhile
        assert ("is taken" in worker.text()) == (port != DEFAULT_METRICS_PORT)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = shell.run(*FAKE, "--metrics-port", str(port))
    assert ended.returncode == 2
    assert str(port) in ended.stderr.splitlines()[-1]


def test_results_to_a_place_that_cannot_be_written(shell: Shell) -> None:
    job = shell.submit(text=lines(1))["job_id"]
    for output in ("/no/such/folder/out.jsonl", "."):
        ended = shell.run("producer", "results", job, "--partial", "-o", output)
        assert ended.returncode == 2
        assert len(ended.stderr.splitlines()) == 1
        assert ended.stderr.startswith(f"producer: {output}: "), ended.stderr
    shell.producer("results", job, "--partial", "-o", "/dev/null")
    shell.fake()
    shell.producer("watch", job)
    piped = shell.run("bash", "-c", f"producer results {job} -o /dev/stdout | cat")
    assert len(piped.stdout.splitlines()) == 1, piped.stderr
    assert not Path("/dev/null").is_file()


def test_a_reader_that_has_seen_enough(shell: Shell) -> None:
    shell.fake()
    job = shell.submit(text=lines(3000))["job_id"]
    shell.producer("watch", job)
    ended = shell.run("bash", "-c", f"producer results {job} | head -1")
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    assert len(ended.stdout.splitlines()) == 1


def test_an_evicting_redis_is_refused(shell: Shell) -> None:
    with Redis.from_url(EmbeddedRedis(shell.folder / "data" / "redis").url) as redis:
        redis.config_set("maxmemory-policy", "allkeys-lru")
    ended = shell.run(*FAKE)
    assert ended.returncode == 2
    assert "noeviction" in ended.stderr.splitlines()[-1]


def test_a_worker_without_a_model_claims_no_mode(shell: Shell) -> None:
    """The default mode is psd, which a fake engine does not have."""
    assert 'mode="fake"' in shell.fake().metrics()


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "command", ["producer submit rows.jsonl", "producer submit -", "producer list", "producer --help"]
)
def test_streams_that_are_closed_are_no_reason_to_fail(shell: Shell, command: str, stream: str) -> None:
    (shell.folder / "rows.jsonl").write_text(lines(3))
    ended = shell.run("bash", "-c", f"{command} {stream}", text=lines(3))
    nothing_to_submit = command.endswith("-") and "<&-" in stream
    assert ended.returncode == (2 if nothing_to_submit else 0), ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) <= 1


@pytest.mark.parametrize("command", ["--help", "list", "results JOB", "status JOB --json"])
def test_standard_output_that_is_full_or_has_no_reader(shell: Shell, command: str) -> None:
    job = shell.submit(text=lines(3))["job_id"]
    shell.fake()
    shell.producer("watch", job)
    command = f"producer {command.replace('JOB', job)}"
    full = shell.run("bash", "-c", f"{command} > /dev/full")
    assert (full.returncode, len(full.stderr.splitlines())) == (2, 1), full.stderr
    assert "No space left on device" in full.stderr
    unread = shell.run("bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}")
    assert unread.stdout == ("1\n" if "--help" in command else "0\n")  # click's own, for its help
    assert "Traceback" not in unread.stderr


#: Ctrl-C arrives while a module of the command line is being imported.
_INTERRUPTED = """
import builtins, os, signal, sys
import producer.__main__
genuine = builtins.__import__
def importing(name, *arguments, **more):
    if name == "producer.cli":
        os.kill(os.getpid(), signal.SIGINT)
    return genuine(name, *arguments, **more)
builtins.__import__ = importing
producer.__main__.main()
"""


def test_ctrl_c_in_the_first_moments(shell: Shell) -> None:
    ended = shell.run(sys.executable, "-c", _INTERRUPTED, "list")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
